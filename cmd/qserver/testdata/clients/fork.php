<?php
// A worker that forks while it holds a job: php fork.php PORT. The child's end ends the connection that both have.
$queue = new Memcached();
$queue->addServer('127.0.0.1', (int) $argv[1]);
$job = $queue->get('fork');
$child = pcntl_fork();
if ($child === 0) {
    exit; // which says quit on the connection
}
pcntl_waitpid($child, $status);
echo $job, ' ', $queue->delete('fork') ? 'acked' : 'not acked', "\n";
