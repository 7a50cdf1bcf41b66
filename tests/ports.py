"""Ports for nodes of tests, which no other process that tests is given."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def ports_in_a_row(count: int) -> int:
    """Return the first of some free ports in a row."""
    found = free_ports(count)
    while found[-1] - found[0] != count - 1:
        found = [*found[1:], *free_ports(1)]
    return found[0]


def free_ports(count: int) -> list[int]:
    """Return ports that nothing uses, each once in a process, and in no other that tests.

    They lie below those that the kernel gives to outgoing connections: one of these could take a
    port before its node has started, or while it is down.
    None is a round number: comparisons replace a node's port by a name wherever it stands, and
    values of settings are round numbers.
    """
    return list(islice(_FREE_PORTS, count))


def _free_ports() -> Iterator[int]:
    for number in range(_PORT_BLOCKS):
        block = 110 + (os.getpid() + number) % _PORT_BLOCKS
        if _is_reserved(block):
            yield from filter(_is_free, range(block * 100 + 1, block * 100 + 100))


def _is_reserved(block: int) -> bool:
    """Whether this process has a hundred ports for itself, until it ends."""
    directory = Path(tempfile.gettempdir(), "ottla-test-ports")
    directory.mkdir(exist_ok=True)
    lock = directory.joinpath(str(block)).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    _reservations.append(lock)
    return True


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


_PORT_BLOCKS = 210
_reservations: list[IO[str]] = []
_FREE_PORTS = _free_ports()
