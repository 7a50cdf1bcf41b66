"""Any course of a handshake: nothing is served before it is complete, and nothing after noise."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.network.limits import ReceiveWindow
from ottla.network.tls import TlsConnection
from tests.server.security.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME = b"\0\0\0\4ping"
TURNS = 6
"""Of the loop, after which nothing is left to do."""


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return those of a node and of a client that believes it."""
    authority = Authority()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as path:
        server.load_cert_chain(authority.issue("node").write_pem(Path(path) / "node.pem"))
    client = ssl.create_default_context(cadata=authority.pair.certificate_pem)
    return server, client


class Side:
    """The listener: runs handshakes at once, and notes what is served."""

    def __init__(self) -> None:
        self.is_secured = False
        self.served: list[bytes] = []
        self.is_closed = False

    def run(self, job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        try:
            result = job()
        except (OSError, ValueError) as error:
            done(None, error)
        else:
            done(result, None)

    def secured(self, _connection: TlsConnection, _tls: ssl.SSLSocket) -> None:
        assert not self.is_secured
        self.is_secured = True

    def handle_frame(self, connection: TlsConnection, frame: memoryview) -> None:
        self.served.append(bytes(frame))
        connection.respond([FRAME])

    def connection_closed(self, _connection: TlsConnection) -> None:
        assert not self.is_closed
        self.is_closed = True


class Handshakes(RuleBasedStateMachine):
    """A client that sends its handshake in parts, with noise, an end or requests in between."""

    @initialize()
    def connect(self) -> None:
        """Open a connection."""
        server, client = contexts()
        self.loop = asyncio.new_event_loop()
        self.side = Side()
        own, self.sock = socket.socketpair()
        own.setblocking(False)
        self.sock.setblocking(False)
        self.connection = TlsConnection(
            self.loop,
            own,
            self.side,  # type: ignore[arg-type] # of TLS connections alone
            context=server,
            handshake=self.side,
            window=ReceiveWindow(bytearray(4096)),
            max_frame_bytes=1000,
            budget=None,
            connection_id="127.0.0.1:1-127.0.0.1:2-0-0",
            listener_name="TLS",
            peer_host="127.0.0.1",
        )
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.waiting = b""
        self.asked = 0
        self.is_done = self.is_broken = self.is_over = False
        self._shake()

    def _turn(self) -> None:
        for _ in range(TURNS):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        with suppress(OSError):
            while data := self.sock.recv(65_536):
                self.incoming.write(data)

    def _shake(self) -> None:
        if not self.is_done and not self.is_broken:
            with suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                self.is_done = True
        self.waiting += self.outgoing.read()

    def _send(self, data: bytes) -> None:
        with suppress(OSError):
            self.sock.send(data)
        self._turn()

    @precondition(lambda self: self.waiting and not self.is_over)
    @rule(size=st.sampled_from([1, 5, 100, 100_000]))
    def go_on(self, size: int) -> None:
        """Send a part of what is to be sent."""
        part, self.waiting = self.waiting[:size], self.waiting[size:]
        self._send(part)
        if not self.is_broken:
            self._shake()

    @precondition(lambda self: self.is_done and not self.is_over and not self.is_broken)
    @rule()
    def ask(self) -> None:
        """Send a request."""
        self.tls.write(FRAME)
        self.asked += 1
        self._shake()

    @precondition(lambda self: not self.is_over)
    @rule(data=st.binary(min_size=5, max_size=40))
    def make_noise(self, data: bytes) -> None:
        """Send bytes that are none of TLS's."""
        self.is_broken = True
        self._send(data)

    @rule()
    def end(self) -> None:
        """Close the client's side; then nothing more happens."""
        self.is_over = True
        self.sock.close()
        self._turn()

    @invariant()
    def nothing_is_served_without_a_handshake(self) -> None:
        """Check that what is served was asked for, within the encryption."""
        served = self.side.served
        assert not served or self.side.is_secured
        assert len(served) <= self.asked
        assert set(served) <= {FRAME[4:]}
        assert self.connection.is_closed == self.side.is_closed

    def teardown(self) -> None:
        """Let all requests that were sent whole be served; end the connection."""
        if not (self.is_broken or self.is_over):
            while self.waiting:
                self.go_on(100_000)
            assert len(self.side.served) == self.asked
        self.sock.close()
        self._turn()
        self._turn()
        self.connection.close()
        assert self.side.is_closed
        self.loop.close()


Handshakes.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
TestHandshakes = Handshakes.TestCase
