"""A client that ends its connection before it is accepted costs the listener nothing."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any, cast

from ottla.network.limits import ConnectionQuota
from ottla.network.server import Listener
from ottla.network.sockets import listen
from tests.network.test_tls_states import Side, contexts
from tests.waits import until

if TYPE_CHECKING:
    import ssl

    import pytest

    from ottla.network.connection import RequestHandler

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero: close sends RST."""


class TlsSide(Side):
    """Secures every connection."""

    def context(self) -> ssl.SSLContext:
        return contexts()[0]

    def expires_s(self) -> float | None:
        return None

    def accepted(self, connection: Any, listener: Any) -> None:
        """Require no login."""


def _reset(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def test_a_reset_before_the_handshake_is_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    """As health checks of load balancers do; the next connection is accepted in the same turn."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        failures: list[Any] = []
        loop.set_exception_handler(lambda _loop, context: failures.append(context))
        quota, side = ConnectionQuota(max_count=10), TlsSide()
        listener = Listener(
            loop,
            listen("127.0.0.1", 0),
            cast("RequestHandler", side),
            name="TEST",
            max_frame_bytes=1 << 20,
            scratch=bytearray(65536),
            quota=quota,
            security=side,
        )
        for _ in range(12):
            _reset(listener.port)
        with socket.create_connection(("127.0.0.1", listener.port)):
            listener.start()
            await until(lambda: bool(listener.connections))
            assert quota.count == 1
        listener.close()
        assert not quota.count
        assert not failures

    asyncio.run(asyncio.wait_for(main(), 60))
    assert "max.connections" not in caplog.text
