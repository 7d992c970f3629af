<?php
// The working half of the blog's loop: php blog_work.php PORT COUNT
$memcached = new Memcached();
$memcached->addServer('127.0.0.1', (int) $argv[1]);
$count = 0;
for ($i = 0; $i < $argv[2]; $i++) {
    $data = $memcached->get('testkey');
    if ($data) {
        // the job is done here
        if ($memcached->delete('testkey')) {
            $count++;
        }
    }
}
echo $count, "\n";
