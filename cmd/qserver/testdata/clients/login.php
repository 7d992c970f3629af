<?php
// A worker that logs in: php login.php ADDRESS USER PASSWORD. ADDRESS is a port of this machine, spoken to in binary with SASL, or
// the file of a Unix socket, in text with a first set. Prints what became of a message: "body", or the error's number.
[, $address, $user, $password] = $argv;
$queue = new Memcached();
if (ctype_digit($address)) {
    $queue->setOption(Memcached::OPT_BINARY_PROTOCOL, true);
    $queue->setSaslAuthData($user, $password);
    $queue->addServer('127.0.0.1', (int) $address);
} else {
    $queue->addServer($address, 0);
    if (!$queue->set('login', "$user $password")) {
        exit("refused\n");
    }
}
if (!$queue->set('php', 'body')) {
    exit("refused\n");
}
$got = $queue->get('php');
echo $queue->delete('php') ? $got : $queue->getResultMessage(), "\n";
