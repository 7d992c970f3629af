<?php
// What a worker does, with PHP's Memcached: php verbs.php PORT HTTP-PORT
[$file, $port, $http] = $argv;

if (isset($argv[3])) { // the worker that is killed while it holds a message
    $m = client();
    echo $m->get('mortal'), "\n";
    sleep(60);
    exit;
}

function client(): Memcached
{
    global $port;
    $m = new Memcached();
    $m->addServer('127.0.0.1', (int) $port);
    $m->setOption(Memcached::OPT_POLL_TIMEOUT, 20000);
    return $m;
}

function want(string $what, $got, $want): void
{
    if ($got !== $want) {
        fwrite(STDERR, "$what: got " . short($got) . ', want ' . short($want) . "\n" . (new Exception())->getTraceAsString() . "\n");
        exit(1);
    }
}

function short($value): string
{
    return substr(var_export($value, true), 0, 200);
}

// counts compares the queue's counts online: ready, reserved, delayed; and the three ways to ask for the sum.
function counts(string $queue, int $ready, int $reserved, int $delayed): void
{
    global $http, $a;
    $q = json_decode(file_get_contents("http://127.0.0.1:$http/api/v1/queues/$queue"), true);
    want("counts of $queue", [$q['ready'], $q['reserved'], $q['delayed']], [$ready, $reserved, $delayed]);
    want("items of $queue", $q['items'], $ready + $reserved + $delayed);
    want('totals', $q['enqueued_total'], $q['acked_total'] + $q['purged_total'] + $q['expired_total'] + $q['items'] + $q['dead']);
    $all = array_sum(array_column(json_decode(file_get_contents("http://127.0.0.1:$http/api/v1/queues"), true)['queues'], 'items'));
    preg_match('/^count\t(\d+)$/m', file_get_contents("http://127.0.0.1:$http/rpc/status"), $m);
    want('rpc/status', (int) $m[1], $all);
    want('stats', (int) array_values($a->getStats())[0]['curr_items'], $all);
}

function reserve(Memcached $m, string $key): array
{
    $got = $m->get($key, null, Memcached::GET_EXTENDED);
    want("get $key", is_array($got), true);
    return $got;
}

$a = client();
$b = client();

// Version and statistics are parsed.
want('version', (bool) preg_match('/^\d+\.\d+\.\d+$/', array_values($a->getVersion())[0]), true);
want('stats', array_values($a->getStats())[0]['pid'] > 1, true);

// Bodies and flags are kept exactly. Values of other types come back as they were: the extension keeps them in the flags.
$bodies = ['', "\0", "a\r\nb", "END\r\nget odd\r\n", str_repeat("\0\r\n\xff", 1 << 18), random_bytes(1 << 20), str_repeat('x', 1 << 20),
    42, 1.5, true, ['k' => [1, 'two', null]]];
foreach ($bodies as $i => $body) {
    $a->setOption(Memcached::OPT_USER_FLAGS, 1000 + $i);
    want('set', $a->set('odd', $body), true);
}
counts('odd', count($bodies), 0, 0);
foreach ($bodies as $i => $body) {
    $got = reserve($a, 'odd');
    want("body $i", $got['value'], $body);
    want("flags of body $i", $got['flags'], 1000 + $i);
    want('delete', $a->delete('odd'), true);
}
counts('odd', 0, 0, 0);
want('get of nothing', $a->get('odd'), false);
want('its result', $a->getResultCode(), Memcached::RES_NOTFOUND);
want('delete of nothing', $a->delete('odd'), false);

// Two workers: each takes another message, and acks its own by position.
foreach (['one', 'two', 'three'] as $body) {
    want('set', $a->set('work', $body), true);
}
want('first', $a->get('work'), 'one');
want('second worker', $b->get('work'), 'two');
counts('work', 1, 2, 0);
want('delete', $b->delete('work'), true);
want('delete without a message', $b->delete('work'), false);
want('delete', $a->delete('work'), true);
counts('work', 1, 0, 0);

// The receipt acks from any connection.
$got = reserve($a, 'work');
want('by receipt', $b->delete("work/id={$got['cas']}"), true);
want('again', $a->delete("work/id={$got['cas']}"), false);
counts('work', 0, 0, 0);

// Nack: at once, and after a second, which also shows waiting.
$a->set('nack', 'again');
$got = reserve($a, 'nack');
want('release', $a->delete("nack/id={$got['cas']}/release=0"), true);
counts('nack', 1, 0, 0);
$got = reserve($b, 'nack');
want('release=1', $b->delete('nack/release=1'), true);
counts('nack', 0, 0, 1);
want('nothing yet', $a->get('nack/t=20'), false);
want('waited for', $a->get('nack/t=15000'), 'again');
want('delete', $a->delete('nack'), true);

// A delayed message.
want('set', $a->set('later/delay=1', 'x'), true);
counts('later', 0, 0, 1);
want('waited for', $b->get('later/t=15000'), 'x');
want('delete', $b->delete('later'), true);

// Several at once under tags; each is acked by its own.
foreach (['1', '2', '3'] as $body) {
    $a->set('tags', $body);
}
$got = $a->getMulti(['tags/n=x', 'tags/n=y'], Memcached::GET_EXTENDED);
want('getMulti', [$got['tags/n=x']['value'], $got['tags/n=y']['value']], ['1', '2']);
want('ack y', $a->delete('tags/n=y'), true);
want('release x', $a->delete('tags/n=x/release=0'), true);
counts('tags', 2, 0, 0);
want('getDelayed', $a->getDelayed(['tags/batch=9'], true), true);
$batch = [];
while ($item = $a->fetch()) {
    $batch[] = $item['value'];
    want('by receipt', $b->delete("tags/id={$item['cas']}"), true);
}
want('batch', $batch, ['1', '3']);
counts('tags', 0, 0, 0);

// A lease outlives the connection; what has none goes back when it ends.
$a->set('lease', 'kept');
$a->set('lease', 'returned');
$c = client();
$got = reserve($c, 'lease/lease=60');
want('without lease', $c->get('lease'), 'returned');
$c->quit();
want('went back', $b->get('lease/t=15000'), 'returned');
want('delete', $b->delete('lease'), true);
counts('lease', 0, 1, 0);
want('touch', $b->touch("lease/id={$got['cas']}", 1), true);
want('lapsed', reserve($b, 'lease/t=15000')['value'], 'kept');
want('late ack', $a->delete("lease/id={$got['cas']}"), false);
want('touch by position', $b->touch('lease', 60), true);
want('delete', $b->delete('lease'), true);
counts('lease', 0, 0, 0);

// Progress is saved by cas.
$a->set('progress', 'step 1');
$got = reserve($a, 'progress');
want('cas', $a->cas($got['cas'], 'progress', 'step 2'), true);
want('cas again', $a->cas($got['cas'], 'progress', 'step 3'), false);
want('get', $a->get('progress'), 'step 2');
want('delete', $a->delete('progress'), true);

// add and replace look at the queue.
want('replace', $a->replace('single', 'x'), false);
want('add', $a->add('single', 'x'), true);
want('add again', $a->add('single', 'y'), false);
want('replace', $a->replace('single', 'z'), true);
counts('single', 2, 0, 0);
foreach (['x', 'z'] as $body) {
    want('get', $a->get('single'), $body);
    want('delete', $a->delete('single'), true);
}

// A worker that is killed while it holds a message.
$a->set('mortal', 'job');
$child = proc_open([PHP_BINARY, $file, $port, $http, 'hold'], [1 => ['pipe', 'w']], $pipes);
want('the child', fgets($pipes[1]), "job\n");
counts('mortal', 0, 1, 0);
proc_terminate($child, 9);
want('it comes back', $a->get('mortal/t=15000'), 'job');
want('delete', $a->delete('mortal'), true);

foreach (['odd', 'work', 'nack', 'later', 'tags', 'lease', 'progress', 'single', 'mortal'] as $queue) {
    counts($queue, 0, 0, 0);
}
echo "ok\n";
