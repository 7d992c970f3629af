"""A client library told what to do in lines: python3 story.py PORT timeout=MS LIBRARY [OPTION]…

Libraries and their options: pymemcache (pooled, hash, noreply, prefix), pylibmc (binary, compress), python-memcached
(compress, noreply).
"""

import base64
import sys

port, timeout, library = int(sys.argv[1]), int(sys.argv[2].removeprefix("timeout=")), sys.argv[3]
options = sys.argv[4:]
values = [42, -1, 1.5, None, {"k": [1, "two", None]}, "text \u00e4", "42", "", b"\0"]


class Pymemcache:
    silent = "noreply" in options

    def __init__(self):
        from pymemcache import serde

        self.client, self.typed = self.dial(self), self.dial(serde.pickle_serde)

    def dial(self, serde):
        from pymemcache.client.base import Client, PooledClient
        from pymemcache.client.hash import HashClient

        address = ("127.0.0.1", port)
        kwargs = dict(timeout=timeout / 1000, serde=serde)
        if not self.silent:
            kwargs["default_noreply"] = False
        if "prefix" in options:
            kwargs["key_prefix"] = b"app:"
        if "hash" in options:
            # Without dead_timeout a server that was too slow is left out for a minute.
            return HashClient([address], dead_timeout=0.1, use_pooling="pooled" in options, **kwargs)
        if "pooled" in options:
            return PooledClient(address, max_pool_size=4, **kwargs)
        return Client(address, **kwargs)

    def serialize(self, key, value):
        return value, 0

    def deserialize(self, key, value, flags):
        return value, flags

    def enqueue(self, key, exptime, flags, body):
        return self.client.set(key, body, expire=exptime, flags=flags)

    def reserve(self, key):
        got, receipt = self.client.gets(key)
        return (receipt or b"-").decode(), *(("-", None) if got is None else (got[1], got[0]))

    def several(self, keys):
        got = self.client.gets_many(keys)
        return [(got[key][1].decode(), got[key][0][0]) for key in keys]

    def progress(self, key, receipt, body):
        return self.client.cas(key, body, receipt.encode())

    def values(self, key):
        for value in values:
            self.typed.set(key, value, noreply=False)
            got, receipt = self.typed.gets(key)
            yield value, got
            self.typed.delete("%s/id=%s" % (key, receipt.decode()), noreply=False)

    def version(self):
        return self.asking().version().decode()

    def stat(self, name):
        return self.asking().stats()[name.encode()]

    def asking(self):
        """HashClient has neither call, but its clients have."""
        return self.client._get_client("stats") if "hash" in options else self.client

    def close(self):
        self.client.close()


class Pylibmc:
    silent = False

    def __init__(self):
        import pylibmc

        behaviors = {"cas": True, "_poll_timeout": timeout, "_retry_timeout": 0}
        self.client = pylibmc.Client(["127.0.0.1:%d" % port], binary="binary" in options, behaviors=behaviors)
        self.ordinary = pylibmc.NotFound, pylibmc.DataExists  # the latter for an ack in binary that comes too late

    def enqueue(self, key, exptime, flags, body):
        return self.client.set(key, body, time=exptime, min_compress_len=2000 if "compress" in options else 0)

    def reserve(self, key):
        body, receipt = self.client.gets(key)
        return "-" if receipt is None else str(receipt), "-", None if receipt is None else body

    def several(self, keys):
        return [("-", got) for got in map(self.client.get_multi(keys).get, keys)]

    def progress(self, key, receipt, body):
        return self.client.cas(key, body, int(receipt))

    def values(self, key):
        for value in values:
            self.client.set(key, value)
            yield value, self.client.get(key)
            self.client.delete(key)

    def version(self):
        return "-"  # it has no call for it

    def stat(self, name):
        return self.client.get_stats()[0][1][name].decode()

    def close(self):
        self.client.disconnect_all()


class PythonMemcached:
    silent = "noreply" in options

    def __init__(self):
        import memcache

        # A server that was too slow would be left out for half a minute.
        self.client = memcache.Client(["127.0.0.1:%d" % port], socket_timeout=timeout / 1000, dead_retry=0, cache_cas=True,
                                      server_max_value_length=64 << 20)
        self.noreply = {"noreply": True} if self.silent else {}

    def enqueue(self, key, exptime, flags, body):
        return self.client.set(key, body, time=exptime, min_compress_len=2000 if "compress" in options else 0, **self.noreply)

    def reserve(self, key):
        self.client.cas_ids.clear()
        body = self.client.gets(key)
        receipt = self.client.cas_ids.get(key.encode())
        return str(receipt or "-"), "-", body

    def several(self, keys):
        return [("-", got) for got in map(self.client.get_multi(keys).get, keys)]

    def progress(self, key, receipt, body):
        self.client.cas_ids[key.encode()] = int(receipt)
        return self.client.cas(key, body)

    def values(self, key):
        for value in values:
            self.client.set(key, value)
            yield value, self.client.get(key)
            self.client.delete(key)

    def version(self):
        return self.stat("version")

    def stat(self, name):
        return self.client.get_stats()[0][1][name]

    def close(self):
        self.client.disconnect_all()


worker = {"pymemcache": Pymemcache, "pylibmc": Pylibmc, "python-memcached": PythonMemcached}[library]()


def decoded(body):
    return b"" if body == "-" else base64.b64decode(body)


def encoded(body):
    return base64.b64encode(body).decode() or "-"


def outcome(yes, no, call, *args, **kwargs):
    try:
        true = call(*args, **kwargs)
    except getattr(worker, "ordinary", ()):
        true = False
    return "sent" if worker.silent else yes if true else no


def stored(call, *args, **kwargs):
    return outcome("stored", "refused", call, *args, **kwargs)


def done(call, *args):
    return outcome("done", "missing", call, *args, **getattr(worker, "noreply", {}))


def reserve(key):
    receipt, flags, body = worker.reserve(key)
    return "empty" if body is None else "message %s %s %s" % (receipt, flags, encoded(body))


def several(*keys):
    return "messages " + " ".join("%s %s" % (receipt, encoded(body)) for receipt, body in worker.several(keys))


def try_values(key):
    for value, got in worker.values(key):
        if (got, type(got)) != (value, type(value)):
            return "error got %r, want %r" % (got, value)
    return "ok"


def act(command, *args):
    client = worker.client
    if command == "enqueue":
        key, exptime, flags, body = args
        return stored(worker.enqueue, key, int(exptime), None if flags == "-" else int(flags), decoded(body))
    if command in ("add", "replace"):
        return stored(getattr(client, command), args[0], decoded(args[1]))
    if command == "reserve":
        return reserve(*args)
    if command == "several":
        return several(*args)
    if command == "ack":
        return done(client.delete, args[0])
    if command == "extend":
        return done(client.touch, args[0], int(args[1]))
    if command == "progress":
        return stored(worker.progress, args[0], args[1], decoded(args[2]))
    if command == "values":
        return try_values(*args)
    if command in ("version", "stat"):
        return str(getattr(worker, command)(*args))
    getattr(worker, command, lambda: None)()  # flush, close
    return "ok"


for line in sys.stdin:
    try:
        answer = act(*line.rstrip("\n").split(" "))
    except Exception as e:
        answer = "error %s" % " ".join(repr(e).split())
    print(answer, flush=True)
