"""Four children share one inherited connection, each getting and acking: python3 fork.py PORT"""

import os
import socket
import sys

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.settimeout(0.03)
for _ in range(4):
    if os.fork() == 0:
        for _ in range(10):
            for command in b"get fork\r\n", b"delete fork\r\n":
                connection.sendall(command)
                try:
                    connection.recv(1000)
                except TimeoutError:  # another child has read it
                    pass
        connection.sendall(b"get fork\r\n")  # held at the end
        os._exit(0)
for _ in range(4):
    os.wait()
print("ok")
