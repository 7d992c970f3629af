"""What a worker does, with a client library: python3 verbs.py LIBRARY PORT HTTP-PORT

LIBRARY is pymemcache, pylibmc or python-memcached. The last two keep the type of a value in the flags, so a test of other
flags is not possible with them.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

library, port, http = sys.argv[1], int(sys.argv[2]), sys.argv[3]


class Pymemcache:
    """One connection of pymemcache. Bodies are bytes; flags are any 32 bits."""

    def __init__(self):
        from pymemcache.client.base import Client

        self.client = Client(("127.0.0.1", port), timeout=20, default_noreply=False, serde=self)

    def serialize(self, key, value):
        return value, 0

    def deserialize(self, key, value, flags):
        return value, flags

    def enqueue(self, key, body, flags=0):
        self.client.set(key, body, flags=flags)

    def reserve(self, key):
        """Returns body, flags and receipt, or None."""
        got, receipt = self.client.gets(key)
        return got and (*got, int(receipt))

    def several(self, keys):
        return [got[0] for got in self.client.get_many(keys).values()]

    def replace_body(self, key, body, receipt):
        return self.client.cas(key, body, str(receipt).encode())

    def version(self):
        return self.client.version().decode()

    def stats(self):
        return {k.decode(): v for k, v in self.client.stats().items()}

    def add(self, key, body):
        return self.client.add(key, body)

    def delete(self, key):
        return self.client.delete(key)

    def touch(self, key, seconds):
        return self.client.touch(key, seconds)

    def close(self):
        self.client.close()


class Pylibmc:
    """One connection of pylibmc."""

    def __init__(self):
        import pylibmc

        self.client = pylibmc.Client(["127.0.0.1:%d" % port], behaviors={"cas": True, "_poll_timeout": 20000})

    def enqueue(self, key, body, flags=0):
        assert self.client.set(key, body)

    def reserve(self, key):
        body, receipt = self.client.gets(key)
        return None if receipt is None else (body, 0, receipt)

    def several(self, keys):
        got = self.client.get_multi(keys)
        return [got[key] for key in keys]

    def replace_body(self, key, body, receipt):
        return self.client.cas(key, body, receipt)

    def version(self):
        return self.stats()["version"].decode()

    def stats(self):
        return {k.decode() if isinstance(k, bytes) else k: v for k, v in self.client.get_stats()[0][1].items()}

    def add(self, key, body):
        return self.client.add(key, body)

    def delete(self, key):
        return self.client.delete(key)

    def touch(self, key, seconds):
        return self.client.touch(key, seconds)

    def close(self):
        self.client.disconnect_all()


class PythonMemcached:
    """One connection of python-memcached."""

    def __init__(self):
        import memcache

        self.client = memcache.Client(["127.0.0.1:%d" % port], socket_timeout=20, cache_cas=True, server_max_value_length=2 << 20)

    def enqueue(self, key, body, flags=0):
        assert self.client.set(key, body)

    def reserve(self, key):
        body = self.client.gets(key)
        return None if body is None else (body, 0, self.client.cas_ids[key.encode()])

    def several(self, keys):
        got = self.client.get_multi(keys)
        return [got[key] for key in keys]

    def replace_body(self, key, body, receipt):
        self.client.cas_ids[key.encode()] = receipt
        return self.client.cas(key, body)

    def version(self):
        return self.stats()["version"]

    def stats(self):
        return self.client.get_stats()[0][1]

    def add(self, key, body):
        return self.client.add(key, body)

    def delete(self, key):
        # Its own result is the same for DELETED and NOT_FOUND unless the latter is left out of what it takes for success.
        return bool(self.client._deletetouch([b"DELETED"], "delete", key))

    def touch(self, key, seconds):
        return bool(self.client.touch(key, seconds))

    def close(self):
        self.client.disconnect_all()


Worker = {"pymemcache": Pymemcache, "pylibmc": Pylibmc, "python-memcached": PythonMemcached}[library]

if sys.argv[4:] == ["hold"]:  # the worker that is killed while it holds a message
    worker = Worker()
    print(worker.reserve("mortal")[0].decode(), flush=True)
    sys.stdin.read()


def fetch(path):
    with urllib.request.urlopen("http://127.0.0.1:%s%s" % (http, path)) as answer:
        return answer.read().decode()


def want(got, expected):
    if got != expected:
        raise AssertionError("got %.200r, want %.200r" % (got, expected))


def counts(queue, ready, reserved, delayed):
    """Compares the queue's counts online, and the three ways to ask for the sum."""
    q = json.loads(fetch("/api/v1/queues/" + queue))
    want((q["ready"], q["reserved"], q["delayed"]), (ready, reserved, delayed))
    want(q["items"], ready + reserved + delayed)
    want(q["enqueued_total"], q["acked_total"] + q["purged_total"] + q["expired_total"] + q["items"] + q["dead"])
    items = sum(q["items"] for q in json.loads(fetch("/api/v1/queues"))["queues"])
    want(int(re.search(r"^count\t(\d+)$", fetch("/rpc/status"), re.M)[1]), items)
    want(int(a.stats()["curr_items"]), items)


a, b = Worker(), Worker()

# Version and statistics are parsed.
want(bool(re.fullmatch(r"\d+\.\d+\.\d+", a.version())), True)
want(int(a.stats()["pid"]) > 1, True)

# Bodies and flags are kept exactly.
bodies = [b"", b"\0", b"a\r\nb", b"END\r\nget odd\r\n", b"\0\r\n\xff" * (1 << 18), os.urandom(1 << 20)]
if library != "pymemcache":
    bodies += ["text \u00e4", 42, 1.5, {"k": [1, "two", None]}]
for flags, body in enumerate(bodies, 0 if library != "pymemcache" else (1 << 32) - len(bodies)):
    a.enqueue("odd", body, flags)
counts("odd", len(bodies), 0, 0)
for i, body in enumerate(bodies):
    got, flags, _ = a.reserve("odd")
    want((got, type(got)), (body, type(body)))
    want(flags, 0 if library != "pymemcache" else (1 << 32) - len(bodies) + i)
    want(a.delete("odd"), True)
want(a.reserve("odd"), None)
want(a.delete("odd"), False)
counts("odd", 0, 0, 0)

# Two workers: each takes another message, and acks its own by position.
for body in b"one", b"two", b"three":
    a.enqueue("work", body)
want(a.reserve("work")[0], b"one")
want(b.reserve("work")[0], b"two")
counts("work", 1, 2, 0)
want(b.delete("work"), True)
want(b.delete("work"), False)
want(a.delete("work"), True)
counts("work", 1, 0, 0)

# The receipt acks from any connection.
body, _, receipt = a.reserve("work")
want(b.delete("work/id=%d" % receipt), True)
want(a.delete("work/id=%d" % receipt), False)
counts("work", 0, 0, 0)

# Nack: at once, and after a second, which also shows waiting.
a.enqueue("nack", b"again")
_, _, receipt = a.reserve("nack")
want(a.delete("nack/id=%d/release=0" % receipt), True)
counts("nack", 1, 0, 0)
want(b.reserve("nack")[0], b"again")
want(b.delete("nack/release=1"), True)
counts("nack", 0, 0, 1)
want(a.reserve("nack/t=20"), None)
want(a.reserve("nack/t=15000")[0], b"again")
want(a.delete("nack"), True)

# A delayed message.
a.enqueue("later/delay=1", b"x")
counts("later", 0, 0, 1)
want(b.reserve("later/t=15000")[0], b"x")
want(b.delete("later"), True)

# Several at once under tags; each is acked by its own.
for body in b"1", b"2", b"3":
    a.enqueue("tags", body)
want(a.several(["tags/n=x", "tags/n=y"]), [b"1", b"2"])
want(a.reserve("tags/n=x")[0], b"1")  # a retry gets the same one
want(a.delete("tags/n=y"), True)
want(b.delete("tags/n=x/release=0"), True)
counts("tags", 2, 0, 0)
for body in b"1", b"3":
    want(a.reserve("tags")[0], body)
    want(a.delete("tags"), True)

# A lease outlives the connection; what has none goes back when it ends.
a.enqueue("lease", b"kept")
a.enqueue("lease", b"returned")
c = Worker()
_, _, receipt = c.reserve("lease/lease=60")
want(c.reserve("lease")[0], b"returned")
c.close()
want(b.reserve("lease/t=15000")[0], b"returned")
want(b.delete("lease"), True)
counts("lease", 0, 1, 0)
want(b.touch("lease/id=%d" % receipt, 1), True)
want(b.reserve("lease/t=15000")[0], b"kept")
want(a.delete("lease/id=%d" % receipt), False)
want(b.touch("lease", 60), True)
want(b.delete("lease"), True)
counts("lease", 0, 0, 0)

# Progress is saved by cas.
a.enqueue("progress", b"step 1")
_, _, receipt = a.reserve("progress")
want(a.replace_body("progress", b"step 2", receipt), True)
want(bool(a.replace_body("progress", b"step 3", receipt)), False)
want(a.reserve("progress")[0], b"step 2")
want(a.delete("progress"), True)

# add looks at the queue.
want(a.add("single", b"x"), True)
want(a.add("single", b"y"), False)
counts("single", 1, 0, 0)
want(a.reserve("single")[0], b"x")
want(a.delete("single"), True)

# A worker that is killed while it holds a message.
a.enqueue("mortal", b"job")
child = subprocess.Popen([sys.executable] + sys.argv + ["hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
want(child.stdout.readline(), b"job\n")
counts("mortal", 0, 1, 0)
child.kill()
child.wait()
want(a.reserve("mortal/t=15000")[0], b"job")
want(a.delete("mortal"), True)

for queue in "odd", "work", "nack", "later", "tags", "lease", "progress", "single", "mortal":
    counts(queue, 0, 0, 0)
print("ok")
