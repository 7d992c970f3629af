<?php
// Enqueues that the client collects, and whose answers it does not read until it must: php buffered.php PORT N
//
// Beyond 500 unread answers, or 64 KiB, libmemcached reads them between two enqueues with a patience of 50 ms. A sync of the
// disk may take longer; then it drops the connection with all that it had collected, and Debian's build aborts the process. So
// each 400 enqueues are followed by a command that has an answer: that reads all answers, with the usual patience of 5 s.
$queue = new Memcached();
$queue->addServer('127.0.0.1', (int) $argv[1]);
$queue->setOption(Memcached::OPT_BUFFER_WRITES, true);
for ($i = 0; $i < (int) $argv[2]; $i++) {
    $queue->set('buffered', "job $i") || exit("$i: not taken\n");
    if ($i % 400 === 399) {
        $queue->get('buffered/peek') === 'job 0' || exit("$i: " . $queue->getResultMessage() . "\n");
    }
}
echo $queue->get('buffered'), "\n"; // sends what is left
