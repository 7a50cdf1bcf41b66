"""Injected faults of real nodes' links: cut and slow links.

A node's loop opens its connections to other nodes, so it holds back their bytes in both directions;
its listening sockets accept clients, whose bytes they hold back.

Kafka: none; its tests run iptables in containers.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.server.system.real import RealNetwork
from ottla.testing.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.server.system.environment import SocketOptions
    from ottla.types import Buffer

CLIENTS: Final = "clients"
"""The end of a link for all peers that are not nodes."""
End = int | str
_POLL_S = 0.01
_SCRATCH_BYTES = 64 * 1024


class NetworkFaults:
    """Faults of the links of a cluster; an end is a node's id, or CLIENTS."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        """Take the nodes that have links."""
        self._node_ids = tuple(node_ids)
        self._cut: dict[tuple[End, End], None] = {}
        self._delays_s: dict[tuple[End, End], float] = {}
        self._relays: dict[Relay, None] = {}
        self._broken: list[Accepted] = []
        self.node_ports: dict[int, int] = {}
        """By port: the node that listens on it, or that opened a connection from it."""

    def cut(self, one: End, other: End, *, one_way: bool = False) -> None:
        """Hold all bytes back until `heal`; connections stay open.

        With one_way, bytes of the second end still arrive at the first.
        """
        self._check(one, other)
        self._cut[one, other] = None
        if not one_way:
            self._cut[other, one] = None

    def delay(self, one: End, other: End, seconds: float) -> None:
        """Delay bytes between two nodes, or from a node to clients."""
        self._check(one, other)
        self._delays_s[one, other] = self._delays_s[other, one] = seconds

    def drop(self, one: int, other: int) -> None:
        """Reset the current connections between two nodes; new ones may be opened."""
        self._check(one, other)
        for relay in list(self._relays):
            if {relay.source, relay.target} == {one, other}:
                relay.reset()

    def _check(self, one: End, other: End) -> None:
        """Raise ClusterError for a link that does not exist."""
        for end in (one, other):
            if end != CLIENTS and end not in self._node_ids:
                known = ", ".join(map(str, self._node_ids))
                raise ClusterError(
                    f"there is no end {end!r} of a link: there are the nodes {known}, as numbers, "
                    f"and {CLIENTS!r}"
                )
        if one == other:
            raise ClusterError(f"{one!r} has no link to itself")

    def partition(self, *groups: Iterable[End]) -> None:
        """Cut every link between ends of different groups."""
        sets = [list(group) for group in groups]
        for number, group in enumerate(sets):
            for others in sets[number + 1 :]:
                for one in group:
                    for other in others:
                        self.cut(one, other)

    def heal(self) -> None:
        """Deliver everything, including bytes held back between nodes.

        Client connections that lost bytes are closed.
        """
        self._cut.clear()
        self._delays_s.clear()
        broken, self._broken = self._broken, []
        for one in broken:
            one.end()

    def is_cut(self, source: End, target: End) -> bool:
        """Whether bytes of the source do not arrive at the target."""
        return (source, target) in self._cut

    def delay_s(self, source: End, target: End) -> float:
        """Return the delay of a direction."""
        return self._delays_s.get((source, target), 0.0)

    def peer_of(self, port: int) -> End:
        """Return the end that a connection from this port belongs to."""
        return self.node_ports.get(port, CLIENTS)

    def broke(self, accepted: Accepted) -> None:
        """Register a client's connection that lost bytes, to close it."""
        self._broken.append(accepted)

    def opened(self, relay: Relay) -> None:
        """Register an open connection."""
        self._relays[relay] = None

    def ended(self, relay: Relay) -> None:
        """Unregister a closed connection."""
        self._relays.pop(relay, None)


class Pipe:
    """One direction of a connection: bytes wait while it is cut or slow."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        faults: NetworkFaults,
        ends: tuple[End, End],
        deliver: Callable[[bytes], None],
    ) -> None:
        self._loop = loop
        self._faults = faults
        self._ends = ends
        self._deliver = deliver
        self._waiting: list[tuple[float, bytes]] = []

    def send(self, data: bytes) -> None:
        """Deliver bytes now or later."""
        delay_s = self._faults.delay_s(*self._ends)
        if not self._waiting and not delay_s and not self._faults.is_cut(*self._ends):
            self._deliver(data)
            return
        self._waiting.append((self._loop.time() + delay_s, data))
        if len(self._waiting) == 1:
            self._loop.call_later(_POLL_S, self._deliver_due)

    def _deliver_due(self) -> None:
        now_s = self._loop.time()
        while self._waiting and not self._faults.is_cut(*self._ends):
            due_s, data = self._waiting[0]
            if due_s > now_s:
                break
            self._deliver(data)
            del self._waiting[:1]
        if self._waiting:
            self._loop.call_later(_POLL_S, self._deliver_due)

    def close(self) -> None:
        """Deliver nothing more."""
        self._waiting.clear()
        self._deliver = _ignore


def _ignore(_data: bytes) -> None:
    return None


class Relay(asyncio.BufferedProtocol):
    """The protocol of a connection between nodes, and the transport that its owner sees."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        faults: NetworkFaults,
        protocol: asyncio.BufferedProtocol,
        ends: tuple[int, int],
    ) -> None:
        self.source, self.target = ends
        self._loop = loop
        self._faults = faults
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._port = 0
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._out = Pipe(loop, faults, ends, self._write)
        self._in = Pipe(loop, faults, (self.target, self.source), self._receive)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report that it is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._port = transport.get_extra_info("sockname")[1]
        self._faults.node_ports[self._port] = self.source
        self._faults.opened(self)
        self._protocol.connection_made(cast("asyncio.BaseTransport", self))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report its end."""
        self._out.close()
        self._in.close()
        self._faults.node_ports.pop(self._port, None)
        self._faults.ended(self)
        self._protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer for the next bytes."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Pass bytes on, now or later."""
        self._in.send(bytes(self._scratch[:nbytes]))

    def _receive(self, data: bytes) -> None:
        start, end = 0, len(data)
        while start < end:
            # released before the next one: a frame grows as its bytes arrive
            with memoryview(self._protocol.get_buffer(end - start)) as buffer:
                count = min(len(buffer), end - start)
                buffer[:count] = data[start : start + count]
            start += count
            self._protocol.buffer_updated(count)

    def write(self, data: Buffer) -> None:
        """Send bytes, now or later: a transport's."""
        self._out.send(bytes(data))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """Close at once: a transport's."""
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """Break the connection, from any thread."""
        self._loop.call_soon_threadsafe(self.abort)


def connecting(
    base: type[asyncio.AbstractEventLoop], faults: NetworkFaults, node_id: int
) -> asyncio.AbstractEventLoop:
    """Return a loop whose connections to other nodes follow the faults."""

    class NodeLoop(base):  # type: ignore[valid-type,misc] # uvloop's, or asyncio's
        async def create_connection(self, make: Any, host: Any, port: Any, **more: Any) -> Any:
            target = faults.node_ports.get(port)
            if target is None or target == node_id:
                return await super().create_connection(make, host, port, **more)
            while faults.is_cut(node_id, target) or faults.is_cut(target, node_id):  # noqa: ASYNC110 - other threads heal
                await asyncio.sleep(_POLL_S)
            relay = Relay(self, faults, make(), (node_id, target))
            return await super().create_connection(lambda: relay, host, port, **more)

    return cast("asyncio.AbstractEventLoop", NodeLoop())


class FaultyNetwork(RealNetwork):
    """A node's network, whose links to clients follow the faults."""

    def __init__(self, faults: NetworkFaults, node_id: int) -> None:
        self._faults = faults
        self._node_id = node_id

    def listen(self, host: str, port: int, options: SocketOptions) -> socket.socket:
        """Return a listening socket."""
        sock = super().listen(host, port, options)
        self._faults.node_ports[sock.getsockname()[1]] = self._node_id
        return cast("socket.socket", _Listening(sock, self._faults, self._node_id))


class _Listening:
    """A listening socket whose accepted sockets follow the faults."""

    def __init__(self, sock: socket.socket, faults: NetworkFaults, node_id: int) -> None:
        self._socket = sock
        self._faults = faults
        self._node_id = node_id
        self.fileno = sock.fileno
        self.getsockname = sock.getsockname
        self.close = sock.close

    def accept(self) -> tuple[Accepted, tuple[str, int]]:
        """Accept a connection."""
        sock, peer = self._socket.accept()
        return Accepted(sock, self._faults, self._node_id, peer[1]), peer


class Accepted:
    """A client's connection; while it is cut, bytes are discarded, and `heal` closes it."""

    def __init__(self, sock: socket.socket, faults: NetworkFaults, node_id: int, port: int) -> None:
        self._socket = sock
        self._faults = faults
        self._node_id = node_id
        self._port = port
        self._is_broken = False
        self._out: Pipe | None = None
        self.setblocking = sock.setblocking
        self.setsockopt = sock.setsockopt
        self.getsockname = sock.getsockname
        self.getpeername = sock.getpeername
        self.close = sock.close

    def __getattr__(self, name: str) -> Any:
        """Return the socket's attributes for TLS, which bypasses the faults."""
        return getattr(self._socket, name)

    def _is_cut(self, *, out: bool) -> bool:
        """Whether bytes of a direction are discarded."""
        ends = (self._node_id, CLIENTS) if out else (CLIENTS, self._node_id)
        if not self._faults.is_cut(*ends) or self._faults.peer_of(self._port) != CLIENTS:
            return False
        if not self._is_broken:
            self._is_broken = True
            self._faults.broke(self)
        return True

    def end(self) -> None:
        """Shut the connection down in both directions."""
        with suppress(OSError):  # one side has closed it meanwhile
            self._socket.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        """Return the descriptor; sendfile to a cut link ends the connection."""
        if self._is_broken:
            raise ConnectionResetError(errno.ECONNRESET, "the link was cut")
        return self._socket.fileno()

    def send(self, data: Buffer) -> int:
        """Send what fits into the socket; a cut or slow link accepts all bytes."""
        if self._is_cut(out=True):
            return len(data)
        if not self._faults.delay_s(self._node_id, CLIENTS) and self._out is None:
            return self._socket.send(data)
        if self._out is None:
            loop = asyncio.get_running_loop()
            ends = (self._node_id, CLIENTS)
            self._out = Pipe(loop, self._faults, ends, self._send_late)
        self._out.send(bytes(data))
        return len(data)

    def _send_late(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:  # also a client that does not read
            self.end()

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Receive bytes; those of a cut link are lost."""
        count = self._socket.recv_into(buffer)
        if count and self._is_cut(out=False):
            raise BlockingIOError
        return count
