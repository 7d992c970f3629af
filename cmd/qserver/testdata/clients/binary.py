"""What a worker does, with pylibmc over the binary protocol: python3 binary.py PORT"""

import os
import sys

import pylibmc

port = int(sys.argv[1])


def client():
    return pylibmc.Client(["127.0.0.1:%d" % port], binary=True, behaviors={"cas": True, "_poll_timeout": 20000})


def want(got, expected):
    if got != expected:
        raise AssertionError("got %.200r, want %.200r" % (got, expected))


a, b = client(), client()

for body in (b"", b"\0", b"a\r\nb", os.urandom(1 << 20), "text \u00e4", 42, 1.5, {"k": [1, None]}):
    want(a.set("odd", body), True)
    got, receipt = a.gets("odd")
    want((got, type(got), receipt > 0), (body, type(body), True))
    want(a.delete("odd"), True)
want(a.gets("odd"), (None, None))
want(a.delete("odd"), False)

# By receipt from another connection; nack; wait.
a.set("work", "one")
a.set("work", "two")
_, receipt = a.gets("work")
want(b.get("work"), "two")
want(b.delete("work/id=%d" % receipt), True)
want(b.delete("work/release=1"), True)
want(a.get("work/t=20"), None)
want(a.get("work/t=15000"), "two")
want(a.touch("work", 60), True)
want(a.delete("work"), True)
want(a.touch("work", 60), False)

# Several at once, under a prefix.
for body in "123":
    a.set("tags", body)
want(a.get_multi(["n=1", "n=2"], key_prefix="tags/"), {"n=1": "1", "n=2": "2"})
want(a.delete("tags/n=2"), True)
want(a.delete("tags/n=1"), True)
want(a.set_multi({"x": 1, "y": 2}), [])
want(a.get_multi(["x", "y", "none"]), {"x": 1, "y": 2})

_, receipt = a.gets("tags")
want(a.cas("tags", "three", receipt), True)
want(a.cas("tags", "four", receipt), False)
want(a.get("tags"), "three")
want(a.delete("tags"), True)
want(a.add("single", "x"), True)
want(a.add("single", "y"), False)
try:
    a.replace("none", "y")
    raise AssertionError("replaced what is not there")
except pylibmc.NotFound:
    pass
print("ok")
