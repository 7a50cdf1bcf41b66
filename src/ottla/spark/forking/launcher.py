"""What a local session has Spark run in place of Python.

For one of Spark's daemons it gives its three streams and its environment to the server of the
session, whose fork does the work, and waits for the end of that: Java closes the streams of a
process that ends. For anything else, and without a server, it becomes Python itself.

It runs once for each kind of worker, with `python -S -E`, and can import the standard library only.
"""

import json
import os
import socket
import sys

DAEMON = "pyspark.daemon"
ADDRESS = "OTTLA_FORK_SERVER"
"""The variable with the path of the server's socket."""
JVM = "OTTLA_SPARK_JVM"
"""The variable with the process id of the JVM, which is no ancestor of what the server forks."""
HEAD_SIZE = 4
TAKEN = b"1"
ANSWER_SECONDS = 30.0


def main(arguments: list[str]) -> None:
    """Have the server fork a daemon, or run Python with the same arguments."""
    address = os.environ.get(ADDRESS)
    if arguments[:2] != ["-m", DAEMON] or address is None or not is_done(address, arguments[2:]):
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is needed


def is_done(address: str, arguments: list[str]) -> bool:
    """Whether a server has taken this process's streams and work; returns when that has ended."""
    environment = {**os.environ, JVM: str(os.getppid())}
    question = {"arguments": arguments, "environment": environment, "directory": os.getcwd()}  # noqa: PTH109 - imports less
    data = json.dumps(question).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(address)
            socket.send_fds(connection, [len(data).to_bytes(HEAD_SIZE, "big")], [0, 1, 2])
            connection.sendall(data)
            if connection.recv(1) != TAKEN:
                return False
        except OSError:
            return False
        connection.settimeout(None)
        connection.recv(1)
        return True


if __name__ == "__main__":
    main(sys.argv[1:])
