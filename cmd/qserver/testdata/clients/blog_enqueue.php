<?php
// The enqueuing half of the blog's loop: php blog_enqueue.php PORT COUNT
$memcached = new Memcached();
$memcached->addServer('127.0.0.1', (int) $argv[1]);
$data = array(
    'name' => 'testname',
    'testdata' => array(
        1, 2, 3, 4, 5, 6, 7, 8, 9, 0,
        'abcdefghijklmnopqrstuvwxyz',
        'userid' => 'testuserid',
        'entry' => '2011-10-20 12:00:00',
    ),
);
$count = 0;
for ($i = 0; $i < $argv[2]; $i++) {
    if ($memcached->set('testkey', $data)) {
        $count++;
    }
}
echo $count, "\n";
