<?php
// A worker in PHP: php worker.php QUEUE HANDLER.php
//
// HANDLER.php defines function work($job), which does one job and throws if it failed. A job is acked when it is done; one that
// failed comes again after BACKOFF seconds (5), then after twice as long, and so on. While it runs its lease of LEASE seconds (30)
// is extended, so a job may take as long as it takes; if this worker dies another one gets the job when the lease is over.
// SERVER is the server's address (127.0.0.1:11211). SIGTERM and SIGINT let the job at hand end, and stop.
//
// It needs the Memcached and pcntl extensions (php-cli and php-memcached on Debian).

if ($argc !== 3) {
    fwrite(STDERR, "usage: php worker.php QUEUE HANDLER.php\n");
    exit(64);
}
[, $name, $handler] = $argv;
$lease = (int) (getenv('LEASE') ?: 30);
$backoff = (int) (getenv('BACKOFF') ?: 5);
require $handler;

function connect(): Memcached
{
    $queue = new Memcached();
    $queue->addServer(...explode(':', getenv('SERVER') ?: '127.0.0.1:11211'));
    return $queue;
}

// Starts a process that extends the lease until it is killed, and returns its id. It goes on when the job waits in a database, and
// ends by itself when this worker is gone or the lease is lost. Its own death is a kill, too: it must not end what it shares with
// the worker, such as connections to databases.
function extendLease(string $message, int $lease): int
{
    $worker = getmypid();
    if ($child = pcntl_fork()) {
        return $child;
    }
    pcntl_signal(SIGTERM, SIG_IGN);
    pcntl_signal(SIGINT, SIG_IGN);
    $queue = connect();
    do {
        usleep((int) ($lease * 1e6 / 3));
    } while (posix_getppid() === $worker && $queue->touch($message, $lease));
    posix_kill(getmypid(), SIGKILL);
}

$stop = false;
pcntl_async_signals(true);
foreach ([SIGTERM, SIGINT] as $signal) {
    pcntl_signal($signal, function () use (&$stop) { $stop = true; });
}

$queue = connect();
while (!$stop) {
    // Keep the wait, here 3 seconds, below the client's timeout of 5.
    $job = $queue->get("$name/t=3000/lease=$lease", null, Memcached::GET_EXTENDED);
    if ($job === false) {
        if ($queue->getResultCode() !== Memcached::RES_NOTFOUND) {
            error_log("$name: " . $queue->getResultMessage());
            sleep(1);
        }
        continue;
    }
    $message = "$name/id=$job[cas]";
    $extender = extendLease($message, $lease);
    try {
        work($job['value']);
        $end = $message;
    } catch (Throwable $e) {
        error_log($e);
        $end = "$message/backoff=$backoff";
    }
    posix_kill($extender, SIGKILL);
    pcntl_waitpid($extender, $status);
    if (!$queue->delete($end)) {
        error_log("$end: " . $queue->getResultMessage()); // the job will run again
    }
}
