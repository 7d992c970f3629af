<?php
// Values of all types come back as they were: php values.php put|get PORT
$mode = $argv[1];
$queue = new Memcached();
$queue->addServer('127.0.0.1', (int) $argv[2]);
$values = [
    'text' => "accents: é à ü \u{1F600}",
    'bytes' => implode('', array_map('chr', range(0, 255))),
    'whole' => 42,
    'real' => -1.5e300,
    'yes' => true,
    'no' => false,
    'array' => ['name' => 'testname', 'list' => range(0, 5000), 'nested' => ['a' => null]],
    'compressed' => str_repeat('compresses well ', 65536),
];
foreach ($values as $name => $value) {
    if ($mode === 'put') {
        $queue->set("php-$name", $value) || exit("$name: not stored\n");
        continue;
    }
    $got = $queue->get("php-$name");
    if ($queue->getResultCode() !== Memcached::RES_SUCCESS) {
        exit("$name: " . $queue->getResultMessage() . "\n");
    }
    $got === $value || exit("$name: got another value\n");
    $queue->delete("php-$name") || exit("$name: not acked\n");
}
echo "ok\n";
