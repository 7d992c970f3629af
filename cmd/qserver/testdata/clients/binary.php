<?php
// What a worker does, with PHP's Memcached over the binary protocol: php binary.php PORT
[$file, $port] = $argv;

function client(array $options = []): Memcached
{
    global $port;
    $m = new Memcached();
    $m->setOption(Memcached::OPT_BINARY_PROTOCOL, true);
    $m->setOption(Memcached::OPT_POLL_TIMEOUT, 20000);
    $m->setOptions($options);
    $m->addServer('127.0.0.1', (int) $port);
    return $m;
}

function want(string $what, $got, $want): void
{
    if ($got !== $want) {
        $short = fn($value) => substr(var_export($value, true), 0, 200);
        fwrite(STDERR, "$what: got {$short($got)}, want {$short($want)}\n" . (new Exception())->getTraceAsString() . "\n");
        exit(1);
    }
}

$a = client();
$b = client();

want('version', (bool) preg_match('/^\d+\.\d+\.\d+$/', array_values($a->getVersion())[0]), true);
want('stats', (int) array_values($a->getStats())[0]['pid'] > 1, true);

// Bodies, types and flags are kept; compression is the client's business.
$bodies = ['', "\0", "a\r\nb", str_repeat('x', 1 << 20), random_bytes(1 << 20), 42, 1.5, true, ['k' => [1, 'two', null]]];
foreach ($bodies as $body) {
    want('set', $a->set('odd', $body, 3600), true);
}
foreach ($bodies as $i => $body) {
    $got = $a->get('odd', null, Memcached::GET_EXTENDED);
    want("body $i", $got['value'], $body);
    want('receipt', $got['cas'] > 0, true);
    want('delete', $a->delete('odd'), true);
}
want('get of nothing', $a->get('odd'), false);
want('its result', $a->getResultCode(), Memcached::RES_NOTFOUND);
want('delete of nothing', $a->delete('odd'), false);

// Acks by receipt from another connection, nacks, waits.
$a->set('work', 'one');
$a->set('work', 'two');
$got = $a->get('work', null, Memcached::GET_EXTENDED);
want('second worker', $b->get('work'), 'two');
want('by receipt', $b->delete("work/id={$got['cas']}"), true);
want('again', $a->delete("work/id={$got['cas']}"), false);
want('nack', $b->delete('work/release=1'), true);
want('nothing yet', $a->get('work/t=20'), false);
want('waited for', $a->get('work/t=15000'), 'two');
want('delete', $a->delete('work'), true);

// A lease outlives the connection and is extended by receipt.
$a->set('lease', 'kept');
$c = client();
$got = $c->get('lease/lease=60', null, Memcached::GET_EXTENDED);
$c->quit();
want('touch', $b->touch("lease/id={$got['cas']}", 1), true);
want('lapsed', $b->get('lease/t=15000'), 'kept');
want('touch by position', $b->touch('lease', 60), true);
want('touch of nothing', $a->touch('lease', 60), false);
want('delete', $b->delete('lease'), true);

// Several at once, and a list.
foreach (['1', '2', '3', '4'] as $body) {
    $a->set('tags', $body);
}
want('getMulti', $a->getMulti(['tags/n=x', 'tags/n=y']), ['tags/n=x' => '1', 'tags/n=y' => '2']);
want('ack y', $a->delete('tags/n=y'), true);
want('release x', $a->delete('tags/n=x/release=0'), true);
want('getMulti of nothing', $a->getMulti(['none', 'nothing']), []);
$got = $a->getMulti(['none/t=5000', 'tags'], Memcached::GET_EXTENDED);
want('one of them', $got['tags']['value'], '1');
want('ack', $a->delete("tags/id={$got['tags']['cas']}"), true);

// Progress is saved by cas; add and replace look at the queue.
$got = $a->get('tags', null, Memcached::GET_EXTENDED);
want('cas', $a->cas($got['cas'], 'tags', 'three'), true);
want('cas again', $a->cas($got['cas'], 'tags', 'x'), false);
want('its result', $a->getResultCode(), Memcached::RES_DATA_EXISTS);
want('get', $a->get('tags'), 'three');
want('replace', $a->replace('single', 'x'), false);
want('add', $a->add('single', 'x'), true);
want('add again', $a->add('single', 'y'), false);
want('the connection holds on', $a->delete('tags'), true);

// Buffered writes: the server has half a body until the next flush.
$buffered = client([Memcached::OPT_BUFFER_WRITES => true]);
for ($i = 0; $i < 1000; $i++) {
    $buffered->set('many', str_repeat("$i,", 20));
}
want('the last', $buffered->get('many/peek'), str_repeat('0,', 20));
for ($i = 0; $i < 1000; $i++) {
    want('in order', $buffered->get('many'), str_repeat("$i,", 20));
    $buffered->delete('many');
}
want('none left', $a->get('many'), false);
echo "ok\n";
