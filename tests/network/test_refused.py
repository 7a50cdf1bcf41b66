"""Errors of connections that show that no process listens at an address."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from ottla.network.node_channel import is_refused


def _closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _error(*hosts: str) -> Exception:
    """Return the error of asyncio for a host name with these addresses, on all of a closed port."""
    port = _closed_port()

    async def connect() -> None:
        loop: Any = asyncio.get_running_loop()

        async def addresses(*_arguments: Any, **_options: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

        loop.getaddrinfo = addresses
        await loop.create_connection(asyncio.Protocol, "name", port)

    with pytest.raises(OSError) as raised:  # noqa: PT011 - of any kind
        asyncio.run(connect())
    return raised.value


def test_every_address_of_a_host_has_to_be_refused() -> None:
    """`localhost` often has two."""
    assert is_refused(_error("127.0.0.1"))
    assert is_refused(_error("127.0.0.1", "127.0.0.2"))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((errno.ECONNREFUSED, errno.EADDRNOTAVAIL), True),
        ((errno.ECONNREFUSED, errno.ETIMEDOUT), False),
        ((errno.EADDRNOTAVAIL, errno.ENETUNREACH), False),
    ],
)
def test_addresses_that_this_machine_cannot_use_do_not_count(
    numbers: tuple[int, ...], *, expected: bool
) -> None:
    """One that times out does."""
    text = ", ".join(f"[Errno {number}] Connect call failed" for number in numbers)
    assert is_refused(OSError(f"Multiple exceptions: {text}")) is expected


@pytest.mark.parametrize(
    "error", [TimeoutError(), OSError(errno.EHOSTUNREACH, "no route"), ValueError("no host name")]
)
def test_other_errors_show_nothing(error: Exception) -> None:
    """A lost machine or a cut link, for instance."""
    assert not is_refused(error)
