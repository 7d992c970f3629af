"""Queues spread over several servers by pymemcache's HashClient: python3 hashing.py failover|stay PORT...

It reads commands from its input, one a line:

    set NAME BODY     enqueues, with a priority in the key
    work NAME         takes a message under a lease, extends it and acks it by its receipt: prints the body
    where NAME        prints the port of the queue's server

and prints one line for each. With failover a dead server's queues move to the others, as the client has it by default.
"""

import sys

from pymemcache.client.hash import HashClient
from pymemcache.client.rendezvous import RendezvousHash
from pymemcache.exceptions import MemcacheError


class QueueHash(RendezvousHash):
    """Hashes a key by the name of its queue, so that options don't take the queue to another server."""

    def get_node(self, key):
        return super().get_node(key.split("/")[0])


ports = [int(port) for port in sys.argv[2:]]
stay = sys.argv[1] == "stay"
queue = HashClient(
    [("127.0.0.1", port) for port in ports],
    hasher=QueueHash,
    default_noreply=False,
    timeout=10,
    retry_timeout=0.1,  # seconds until a dead server is tried again
    retry_attempts=sys.maxsize if stay else 2,  # never give it up: its queues wait for it
)


def work(name):
    body, receipt = queue.gets(f"{name}/lease=60") or (None, None)
    if body is None:
        return "empty"
    receipt = receipt.decode()
    queue.touch(f"{name}/id={receipt}", 60)
    return body.decode() if queue.delete(f"{name}/id={receipt}") else "not acked"


for line in sys.stdin:
    command, name, *body = line.rstrip("\n").split(" ", 2)
    try:
        if command == "set":
            print("stored" if queue.set(f"{name}/pri=5", body[0]) else "failed: the server is being left alone", flush=True)
        elif command == "work":
            print(work(name), flush=True)
        else:
            print(queue.hasher.get_node(name).split(":")[1], flush=True)
    except (OSError, MemcacheError) as error:  # the connection ended, or there is none
        print("failed:", type(error).__name__, error, flush=True)
