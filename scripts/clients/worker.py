"""A worker in Python: python3 worker.py QUEUE HANDLER.py

HANDLER.py defines work(job), which does one job, given as bytes, and raises if it failed. A job is acked when it is done; one that
failed comes again after BACKOFF seconds (5), then after twice as long, and so on. While it runs its lease of LEASE seconds (30) is
extended, so a job may take as long as it takes; if this worker dies another one gets the job when the lease is over. SERVER is the
server's address (127.0.0.1:11211). SIGTERM and SIGINT let the job at hand end, and stop.

It needs pymemcache (python3-pymemcache on Debian).
"""

import contextlib
import logging
import os
import runpy
import signal
import sys
import threading
import time

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

LEASE = int(os.environ.get("LEASE", 30))
BACKOFF = int(os.environ.get("BACKOFF", 5))


def connect():
    host, port = os.environ.get("SERVER", "127.0.0.1:11211").rsplit(":", 1)
    return Client((host, int(port)), default_noreply=False, connect_timeout=5, timeout=5)


@contextlib.contextmanager
def extending(message):
    """Extends the lease in a thread with a connection of its own, until the block ends."""
    done = threading.Event()

    def extend():
        with contextlib.closing(connect()) as queue:
            while not done.wait(LEASE / 3):
                try:
                    queue.touch(message, LEASE)
                except (MemcacheError, OSError) as e:
                    logging.warning("%s: %s", message, e)

    thread = threading.Thread(target=extend)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: python3 worker.py QUEUE HANDLER.py")
    name, work = sys.argv[1], runpy.run_path(sys.argv[2])["work"]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    queue = connect()
    while not stop.is_set():
        try:
            # Keep the wait, here 3 seconds, below the client's timeout.
            job, receipt = queue.gets(f"{name}/t=3000/lease={LEASE}")
            if receipt is None:
                continue
            end = message = f"{name}/id={int(receipt)}"
            try:
                with extending(message):
                    work(job)
            except Exception:
                logging.exception("%s failed", message)
                end = f"{message}/backoff={BACKOFF}"
            if not queue.delete(end):
                logging.warning("%s: the lease was over, the job will run again", end)
        except (MemcacheError, OSError) as e:
            logging.warning("%s: %s", name, e)
            time.sleep(1)


if __name__ == "__main__":
    main()
