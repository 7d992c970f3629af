<?php
// Queues spread over several servers by PHP Memcached: php hashing.php PORT… reads commands from its input, one a line:
//
//   set NAME BODY     enqueues, with a priority in the key
//   work NAME         takes a message under a lease, extends it and acks it by its receipt: prints the body
//   where NAME        prints the port of the queue's server
//
// and prints one line for each. All keys of a queue are hashed by its name, so its options don't take it to another server.
$queue = new Memcached();
$queue->setOptions([
    Memcached::OPT_LIBKETAMA_COMPATIBLE => true, // few queues move when a server is added
    Memcached::OPT_REMOVE_FAILED_SERVERS => false, // a dead server's queues wait for it
    Memcached::OPT_RETRY_TIMEOUT => 1, // seconds until a dead server is tried again
]);
foreach (array_slice($argv, 1) as $port) {
    $queue->addServer('127.0.0.1', (int) $port);
}

while (($line = fgets(STDIN)) !== false) {
    [$command, $name, $body] = explode(' ', rtrim($line, "\n"), 3) + ['', '', ''];
    switch ($command) {
        case 'set':
            $stored = $queue->setByKey($name, "$name/pri=5", $body);
            echo $stored ? 'stored' : 'failed: ' . $queue->getResultMessage(), "\n";
            break;
        case 'work':
            $job = $queue->getByKey($name, "$name/lease=60", null, Memcached::GET_EXTENDED);
            if ($job === false) {
                echo $queue->getResultCode() === Memcached::RES_NOTFOUND ? 'empty' : 'failed: ' . $queue->getResultMessage(), "\n";
                break;
            }
            $ok = $queue->touchByKey($name, "$name/id=$job[cas]", 60) && $queue->deleteByKey($name, "$name/id=$job[cas]");
            echo $ok ? $job['value'] : 'not acked: ' . $queue->getResultMessage(), "\n";
            break;
        case 'where':
            echo $queue->getServerByKey($name)['port'], "\n";
            break;
    }
}
