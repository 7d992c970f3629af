<?php
// PHP's Memcached, told what to do in lines: php story.php PORT timeout=MS [OPTION]…
//
// Options: binary, igbinary, json, compress, noreply, buffer, prefix, persistent.
$options = array_slice($argv, 2);

function client(array $options): Memcached
{
    global $argv;
    $m = in_array('persistent', $options) ? new Memcached('pool') : new Memcached();
    $m->setOptions([
        Memcached::OPT_BINARY_PROTOCOL => in_array('binary', $options),
        Memcached::OPT_COMPRESSION => in_array('compress', $options),
        Memcached::OPT_BUFFER_WRITES => in_array('buffer', $options),
    ]);
    if (in_array('noreply', $options)) {
        $m->setOption(Memcached::OPT_NOREPLY, true);
    }
    if (in_array('prefix', $options)) {
        $m->setOption(Memcached::OPT_PREFIX_KEY, 'app:');
    }
    if (in_array('igbinary', $options)) {
        $m->setOption(Memcached::OPT_SERIALIZER, Memcached::SERIALIZER_IGBINARY);
    }
    if (in_array('json', $options)) {
        $m->setOption(Memcached::OPT_SERIALIZER, Memcached::SERIALIZER_JSON_ARRAY);
    }
    foreach ($options as $option) {
        if (str_starts_with($option, 'timeout=')) {
            $m->setOption(Memcached::OPT_POLL_TIMEOUT, (int) substr($option, 8));
        }
    }
    if (!$m->getServerList()) {
        $m->addServer('127.0.0.1', (int) $argv[1]);
    }
    return $m;
}

$m = client($options);
// With noreply the library does not read what getVersion and getStats ask for, and takes it for the next answer.
$asking = in_array('noreply', $options) ? client(array_diff($options, ['noreply'])) : $m;
$silent = in_array('noreply', $options) || in_array('buffer', $options);

// failed says what went wrong, unless it is one of the ordinary results.
function failed(string $ordinary, int ...$results): string
{
    global $m;
    return in_array($m->getResultCode(), $results) ? $ordinary : 'error ' . $m->getResultMessage();
}

function stored(bool $done): string
{
    global $silent;
    return $silent ? 'sent' : ($done ? 'stored' : failed('refused', Memcached::RES_NOTSTORED, Memcached::RES_NOTFOUND, Memcached::RES_DATA_EXISTS));
}

function done(bool $done): string
{
    global $silent;
    return $silent ? 'sent' : ($done ? 'done' : failed('missing', Memcached::RES_NOTFOUND, Memcached::RES_DATA_EXISTS)); // the latter in binary
}

function body(string $encoded): string
{
    return $encoded === '-' ? '' : base64_decode($encoded);
}

function encoded(string $body): string
{
    return $body === '' ? '-' : base64_encode($body);
}

function enqueue(string $key, string $exptime, string $flags, string $body): string
{
    global $m;
    $m->setOption(Memcached::OPT_USER_FLAGS, $flags === '-' ? -1 : (int) $flags);
    return stored($m->set($key, body($body), (int) $exptime));
}

function reserve(string $key): string
{
    global $m;
    $got = $m->get($key, null, Memcached::GET_EXTENDED);
    return is_array($got) ? "message {$got['cas']} {$got['flags']} " . encoded($got['value']) : failed('empty', Memcached::RES_NOTFOUND);
}

function several(string ...$keys): string
{
    global $m;
    $got = $m->getMulti($keys, Memcached::GET_EXTENDED);
    $answer = 'messages';
    foreach ($keys as $key) {
        $answer .= isset($got[$key]) ? " {$got[$key]['cas']} " . encoded($got[$key]['value']) : ' - -';
    }
    return $answer;
}

function batch(string $key): string
{
    global $m;
    $answer = $m->getDelayed([$key], true) ? 'messages' : failed('');
    while ($item = $m->fetch()) {
        $answer .= " {$item['cas']} " . encoded($item['value']);
    }
    return $answer;
}

function values(string $key): string
{
    global $m, $silent;
    $values = [42, -1, 1.5, true, false, ['k' => [1, 'two', null]], "text \u{e4}", '42', ''];
    foreach ($values as $value) {
        $m->set($key, $value);
        $m->flushBuffers();
        $got = $m->get("$key/t=10000", null, Memcached::GET_EXTENDED);
        if (!is_array($got) || $got['value'] !== $value) {
            return 'error got ' . json_encode($got) . ', want ' . json_encode($value);
        }
        if (!$m->delete("$key/id={$got['cas']}") && !$silent) {
            return failed('');
        }
    }
    $m->flushBuffers();
    return 'ok';
}

while (($line = fgets(STDIN)) !== false) {
    $args = explode(' ', rtrim($line, "\n"));
    echo match (array_shift($args)) {
        'enqueue' => enqueue(...$args),
        'add' => stored($m->add($args[0], body($args[1]))),
        'replace' => stored($m->replace($args[0], body($args[1]))),
        'reserve' => reserve(...$args),
        'several' => several(...$args),
        'batch' => batch(...$args),
        'ack' => done($m->delete($args[0])),
        'extend' => done($m->touch($args[0], (int) $args[1])),
        'progress' => stored($m->cas((int) $args[1], $args[0], body($args[2]))),
        'values' => values(...$args),
        'version' => array_values($asking->getVersion())[0],
        'stat' => array_values($asking->getStats())[0][$args[0]],
        'flush' => $m->flushBuffers() ? 'ok' : failed(''),
        'close' => $m->quit() ? 'ok' : failed(''),
    }, "\n";
}
