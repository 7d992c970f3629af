"""A worker that logs in: python3 login.py LIBRARY ADDRESS USER PASSWORD [CA [CERTIFICATE KEY]]

LIBRARY is pymemcache (text, login by a first set) or pylibmc (binary, SASL). ADDRESS is a port of this machine or the file of a Unix
socket. With CA it speaks TLS. Prints what became of a message: "body", or "refused".
"""

import ssl
import sys

library, address, user, password, *tls = sys.argv[1:]
port = int(address) if address.isdigit() else None


def pymemcache():
    from pymemcache.client.base import Client
    from pymemcache.exceptions import MemcacheClientError

    context = None
    if tls:
        context = ssl.create_default_context(cafile=tls[0])
        if len(tls) > 1:
            context.load_cert_chain(tls[1], tls[2])
    server = ("127.0.0.1", port) if port else address
    queue = Client(server, timeout=20, default_noreply=False, tls_context=context)
    if user:
        try:
            queue.set("login", f"{user} {password}")
        except MemcacheClientError:
            return "refused"
    queue.set("pymemcache", "body")
    got = queue.get("pymemcache")
    return got.decode() if queue.delete("pymemcache") else "not there"


def pylibmc():
    import pylibmc

    queue = pylibmc.Client([f"127.0.0.1:{port}"], binary=True, username=user, password=password)
    try:
        queue.set("pylibmc", "body")
        got = queue.get("pylibmc")
        return got if queue.delete("pylibmc") else "not there"
    except pylibmc.Error:
        return "refused"


print({"pymemcache": pymemcache, "pylibmc": pylibmc}[library]())
