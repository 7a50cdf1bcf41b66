"""What a local session has Spark run in place of Python.

For a module of PySpark it gives its three streams and its environment to the server of the session,
whose fork runs the module, and waits for the end of that: Java closes the streams of a process that
ends. For anything else, and without a server, it becomes Python itself.

It runs once for each kind of worker, with `python -S -E`, and can import the standard library only.
"""

import json
import os
import signal
import socket
import sys

PREFIX = "pyspark."
ADDRESS = "OTTLA_FORK_SERVER"
"""The variable with the path of the server's socket."""
JVM = "OTTLA_SPARK_JVM"
"""The variable with the process id of the JVM, which is no ancestor of what the server forks."""
NUMBER_SIZE = 4
"""Bytes of a request's length, and of the process id that answers it."""
TAKEN = b"\1"
"""The launcher's answer to that: only then its streams are the fork's."""
TEXT = "latin-1"
"""Gives each byte of a variable a character, whatever encoding the two processes have."""
ANSWER_SECONDS = 30.0


def main(arguments: list[str]) -> None:
    """Have the server fork a process, or run Python with the same arguments."""
    address = os.environ.get(ADDRESS)
    is_module = arguments[:1] == ["-m"] and "".join(arguments[1:2]).startswith(PREFIX)
    if address is None or not is_module or not is_done(address, arguments[1:]):
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is needed


def is_done(address: str, arguments: list[str]) -> bool:
    """Whether a server has taken this process's streams and work; returns when that has ended."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(address)
            ask(connection, arguments)
            answer = connection.recv(NUMBER_SIZE)
            if len(answer) < NUMBER_SIZE:
                return False
            end_with_this(int.from_bytes(answer, "big"))
            connection.sendall(TAKEN)
        except OSError:
            return False
        connection.settimeout(None)
        connection.recv(1)
        return True


def ask(connection: socket.socket, arguments: list[str]) -> None:
    """Send this process's streams, arguments, environment and directory; OSError without one."""
    directory = os.getcwdb().decode(TEXT)  # noqa: PTH109 - pathlib takes as long to import as all others
    variables = {**environment(), JVM: str(os.getppid())}
    request = {"arguments": arguments, "environment": variables, "directory": directory}
    data = json.dumps(request).encode()
    socket.send_fds(connection, [len(data).to_bytes(NUMBER_SIZE, "big")], [0, 1, 2])
    connection.sendall(data)


def environment() -> dict[str, str]:
    """Return the environment of this process, as `TEXT`."""
    return {name.decode(TEXT): value.decode(TEXT) for name, value in os.environb.items()}


def end_with_this(process_id: int) -> None:
    """Pass SIGTERM on, by which Java ends a process."""

    def end(number: int, _frame: object) -> None:
        try:  # noqa: SIM105 - nothing else is imported for it
            os.kill(process_id, number)
        except OSError:  # it has just ended
            pass
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)


if __name__ == "__main__":
    main(sys.argv[1:])
