"""File slices sent between small buffers over sockets that accept any number of bytes."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from ottla.network.framing import SendQueue, gather
from ottla.types import FileSlice
from tests.network.open_file import OpenFile

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD, BEHIND = b"head of it", b"end"
FILE_BYTES = bytes(range(251)) * 4000


class Picky:
    """A socket that accepts at most a budget of bytes, counted over buffers only."""

    def __init__(self, sock: socket.socket, budget: list[int]) -> None:
        self._sock = sock
        self._budget = budget

    def setsockopt(self, *arguments: int) -> None:
        self._sock.setsockopt(*arguments)

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, data: bytes) -> int:
        budget = self._budget.pop(0) if self._budget else len(data)
        if not budget:
            raise BlockingIOError
        return self._sock.send(data[:budget])


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a connection; the first does not block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = socket.create_connection(server.getsockname())
        writer, _ = server.accept()
    writer.setblocking(False)
    with reader, writer:
        yield writer, reader


def _received(reader: socket.socket, queue: SendQueue, sock: Picky, size: int) -> bytes:
    """Read all, letting the queue send the rest."""
    data = b""
    while len(data) < size:
        queue.flush(sock)  # type: ignore[arg-type] # stands in for a socket
        data += reader.recv(1 << 16)
    return data


@pytest.mark.parametrize("budget", [[], [0], [4], [10], [10, 0], [10, 1], [4, 0, 3], [10, 1, 0, 1]])
@pytest.mark.parametrize("size", [1, 50_000, 1_000_000])
def test_nothing_is_lost_wherever_the_socket_stops(
    pair: tuple[socket.socket, socket.socket], budget: list[int], size: int
) -> None:
    """Interrupted at each position; twice, to show that no socket option remains set."""
    file = OpenFile(FILE_BYTES)
    part, whole = FileSlice(file, 3, size), HEAD + FILE_BYTES[3 : 3 + size] + BEHIND
    queue, writer = SendQueue(), Picky(pair[0], [])
    for stops in (list(budget), []):
        writer = Picky(pair[0], stops)
        queue.add(gather([HEAD, part, BEHIND]))
        is_out = queue.flush(writer)  # type: ignore[arg-type] # as above
        assert is_out is not bool(queue.items)
        assert queue.size_bytes <= len(whole)
        assert _received(pair[1], queue, writer, len(whole)) == whole
        assert (queue.size_bytes, file.pins) == (0, 0)
        assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK) == 0
    file.close()


def test_a_file_that_ends_early_breaks_the_connection(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """A truncated file closes the connection: the announced size cannot be sent."""
    file = OpenFile(FILE_BYTES)
    queue = SendQueue()
    part = FileSlice(file, 0, len(FILE_BYTES) + 1)
    queue.add([HEAD, part, BEHIND])
    with pytest.raises(OSError, match="ended before"):
        _received(pair[1], queue, Picky(pair[0], []), 1 << 30)
    queue.clear()
    assert file.pins == 0
    file.close()


def test_a_small_slice_that_is_not_whole_is_no_answer_either() -> None:
    """The connection is closed, since later bytes would be read as records."""
    file = OpenFile(FILE_BYTES)
    with pytest.raises(OSError, match="ended before"):
        gather([HEAD, FileSlice(file, len(FILE_BYTES) - 10, 11)])
    file.close()


def test_a_file_is_held_while_a_slice_of_it_is_queued() -> None:
    """A dropped slice unpins its file."""
    file = OpenFile(FILE_BYTES)
    queue = SendQueue()
    queue.add([HEAD, FileSlice(file, 0, 100_000), FileSlice(file, 0, 200_000), BEHIND])
    assert file.pins == 2
    queue.clear()
    assert (file.pins, queue.size_bytes, len(queue.items)) == (0, 0, 0)
    file.close()
