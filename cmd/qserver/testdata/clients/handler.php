<?php
// What the workers' test does: see workers_test.go.
function work($job): void
{
    [$name, $action, $argument] = explode(' ', $job);
    file_put_contents(getenv('LOG'), "$name\n", FILE_APPEND);
    if ($action === 'wait') {
        while (!file_exists($argument)) {
            clearstatcache();
            usleep(10000);
        }
    }
    $runs = count(array_keys(file(getenv('LOG')), "$name\n"));
    if ($action === 'fail' && $runs <= (int) $argument) {
        throw new RuntimeException("run $runs of $name");
    }
}
