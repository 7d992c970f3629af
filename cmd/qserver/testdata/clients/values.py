"""Values of all types come back as they were, with python-memcached: python3 values.py put|get PORT"""

import sys

import memcache

mode, port = sys.argv[1:]
queue = memcache.Client([f"127.0.0.1:{port}"], server_max_value_length=64 << 20)
values = {
    "whole": 42,
    "long": 1 << 70,
    "text": "accents: é à ü \U0001f600",
    "bytes": bytes(range(256)),
    "dict": {"a": [1, 2.5, None], "b": {"c": True}},
    "compressed": "compresses well " * 65536,
    "big": bytes(range(256)) * 8192,
}
for name, value in values.items():
    key = f"py-{name}"
    if mode == "put":
        assert queue.set(key, value, min_compress_len=1000 if name == "compressed" else 0), name
        continue
    got = queue.get(key)
    assert type(got) is type(value) and got == value, (name, got)
    assert queue.delete(key), name
print("ok")
