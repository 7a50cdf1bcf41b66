"""Links between simulated hosts: bytes arrive late, in pieces, in order, or the link breaks.

A node sees non-blocking sockets and the loop's `add_reader`, as on a real network; a client sees
the transport that `loop.create_connection` gives it.

Kafka: org.apache.kafka.test.MockSelector.
"""

from __future__ import annotations

import asyncio
import errno
from contextvars import copy_context
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ottla.testing.simulation.process import PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from ottla.testing.simulation.loop import SimulatedLoop
    from ottla.types import Buffer

_FIRST_PORT = 20_000
_CLIENT_HOST = "10.0.0.9"
_CALL_NS, _BYTE_NS = 10_000, 1  # for a call, and copies and checksums of a byte
CLIENTS = "clients"
"""The host of what belongs to no node."""


class LinkRules:
    """How the links behave; may be changed while a simulation runs."""

    latency_us: tuple[int, int] = (40, 400)
    """A message takes between these."""
    slow_probability: float = 0.01
    slow_us: int = 30_000
    """How much longer a slow message may take."""
    split_probability: float = 0.03
    """Of a message that arrives in two pieces."""
    window_bytes: int = 256 * 1024
    """A socket takes no more while so much is unread at the other end."""


class _Pipe:
    """One direction of a link: what was sent and has not been read."""

    __slots__ = ("_arrives_us", "_end", "_held", "_network", "ends", "number", "unread_bytes")

    def __init__(
        self, network: SimulatedNetwork, end: _End, number: str, ends: tuple[str, str]
    ) -> None:
        self._network = network
        self._end = end
        self._held: list[tuple[Callable[..., None], Any]] = []
        """What arrived while the link was cut, in order."""
        self.ends = ends
        """The hosts: from, to."""
        self._arrives_us = 0
        self.number = number
        self.unread_bytes = 0

    def send(self, data: bytes) -> None:
        """Let bytes arrive later, after all that was sent before."""
        size = len(data)
        self.unread_bytes += size
        network = self._network
        if size > 1 and network.rng.random() < network.settings.split_probability:
            middle = network.rng.randrange(1, size)
            self._later(self._arrive, data[:middle])
            data = data[middle:]
        self._later(self._arrive, data)

    def close(self, *, is_reset: bool) -> None:
        """Let the end arrive: after what was sent, or as a reset that overtakes it."""
        self._later(self._ended, is_reset)

    def _later(self, action: Callable[..., None], argument: Any) -> None:
        network = self._network
        loop = network.loop
        arrives_us = loop.now_us + network.latency_us()
        arrives_us = self._arrives_us = max(arrives_us, self._arrives_us)
        loop.happen_at(arrives_us, action, (argument,))

    def _is_held(self, action: Callable[..., None], argument: Any) -> bool:
        """Keep what arrives while the hosts are cut off from each other; asked when any are."""
        network = self._network
        is_cut = self.ends in network.cuts or not network.lost.isdisjoint(self.ends)
        if not self._held and not is_cut:
            return False
        self._held.append((action, argument))
        self._network.held[self] = None
        return True

    def release(self) -> None:
        """Let arrive what was held, later."""
        held, self._held = self._held, []
        for action, argument in held:
            self._later(action, argument)

    def lose(self) -> None:
        """Reset the end that is left: the other host knows nothing of the link any more."""
        self._held = []
        self._later(self._ended, True)

    def _ended(self, is_reset: bool) -> None:  # noqa: FBT001 - called by the loop
        if self._network.is_cutting and self._is_held(self._ended, is_reset):
            return
        self._end.ended(is_reset)

    def _arrive(self, data: bytes) -> None:
        if self._network.is_cutting and self._is_held(self._arrive, data):
            return
        loop = self._network.loop
        loop.trace.add(loop.now_us, "message", self.number, len(data), crc32(data))
        self._end.arrived(data)


class _End:
    """One end of a link, that of a node or of a client."""

    def arrived(self, data: bytes) -> None:
        """Take bytes."""
        raise NotImplementedError

    def ended(self, is_reset: bool) -> None:  # noqa: FBT001 - called by the loop
        """Take note that the other end closed or reset the link."""
        raise NotImplementedError


class SimulatedSocket(_End):
    """A non-blocking socket, with the calls that `network.connection` makes."""

    def __init__(
        self, network: SimulatedNetwork, name: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        self._network = network
        self._fd = network.take_descriptor(self)
        self._name = name
        self._peer = peer
        self.out: _Pipe | None = None
        self.incoming: _Pipe | None = None
        self._inbox = bytearray()
        self._is_at_end = False
        self._is_reset = False
        self._is_closed = False
        self._reader: asyncio.Handle | None = None
        self._writer: asyncio.Handle | None = None

    def fileno(self) -> int:
        """Return the key by which the loop knows the socket."""
        return -1 if self._is_closed else self._fd

    def setblocking(self, _flag: bool) -> None:  # noqa: FBT001 - the socket's interface
        """Do nothing: no simulated socket blocks."""

    def setsockopt(self, *_options: object) -> None:
        """Do nothing."""

    def getsockname(self) -> tuple[str, int]:
        """Return the own address."""
        return self._name

    def getpeername(self) -> tuple[str, int]:
        """Return the other end's address."""
        return self._peer

    def send(self, data: Buffer) -> int:
        """Send what there is room for; BlockingIOError when there is none."""
        self._check()
        assert self.out is not None
        room = self._network.settings.window_bytes - self.out.unread_bytes
        if room <= 0:
            raise BlockingIOError
        part = bytes(data[:room])
        self._network.charge(len(part))
        self.out.send(part)
        return len(part)

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Take bytes; 0 at the end, BlockingIOError when there are none yet."""
        self._check()
        inbox = self._inbox
        if not inbox:
            if self._is_at_end:
                return 0
            raise BlockingIOError
        count = min(len(buffer), len(inbox))
        buffer[:count] = inbox if count == len(inbox) else inbox[:count]
        del inbox[:count]
        self._network.charge(count)
        assert self.incoming is not None
        self.incoming.unread_bytes -= count
        return count

    def _check(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, "the socket is closed")
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")

    def close(self) -> None:
        """Close; the other end reads what was sent, then the end."""
        self._end(is_reset=bool(self._inbox))

    def reset(self) -> None:
        """Break the link, as the death of a process does."""
        self._end(is_reset=True)

    def _end(self, *, is_reset: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._reader = self._writer = None
        self._network.loop.sockets.pop(self._fd, None)
        if self.out is not None:
            self.out.close(is_reset=is_reset)

    def arrived(self, data: bytes) -> None:
        """Take bytes."""
        if not self._is_closed:
            self._inbox += data
            self._wake_reader()

    def ended(self, is_reset: bool) -> None:  # noqa: FBT001 - called by the loop
        """Take note that the other end closed or reset the link."""
        self._is_at_end = True
        self._is_reset = is_reset
        self._wake_reader()
        self._wake_writer()

    # The loop's side

    @property
    def is_writable(self) -> bool:
        """Whether `send` takes a byte, or would fail."""
        assert self.out is not None
        return self._is_at_end or self.out.unread_bytes < self._network.settings.window_bytes

    def set_reader(self, handle: asyncio.Handle | None) -> bool:
        """Watch for bytes, or no longer; return whether it was watched."""
        had, self._reader = self._reader, handle
        if handle is not None:
            self._wake_reader()
        return had is not None

    def set_writer(self, handle: asyncio.Handle | None) -> bool:
        """Watch for room, or no longer; return whether it was watched."""
        had, self._writer = self._writer, handle
        if handle is not None:
            self._wake_writer()
        return had is not None

    def _wake_reader(self) -> None:
        if self._reader is not None and (self._inbox or self._is_at_end):
            self._call(self._reader, self._read_event)

    def _wake_writer(self) -> None:
        if self._writer is not None and self.is_writable:
            self._call(self._writer, self._write_event)

    def room_made(self) -> None:
        """Take note that the other end has read."""
        if self._writer is not None:
            self._wake_writer()

    def _call(self, handle: asyncio.Handle, event: Callable[[asyncio.Handle], None]) -> None:
        self._network.loop.call_soon(event, handle, context=handle._context)  # type: ignore[attr-defined] # noqa: SLF001 - the watcher's own

    def _read_event(self, handle: asyncio.Handle) -> None:
        if self._reader is handle and (self._inbox or self._is_at_end):
            handle._callback(*handle._args)  # type: ignore[attr-defined] # noqa: SLF001 - as the selector loop does
            self._wake_reader()  # level-triggered: bytes that were left are reported again

    def _write_event(self, handle: asyncio.Handle) -> None:
        if self._writer is handle and self.is_writable:
            handle._callback(*handle._args)  # type: ignore[attr-defined] # noqa: SLF001 - as above
            self._wake_writer()


class SimulatedTransport(asyncio.Transport, _End):
    """A client's end of a link, as asyncio gives it."""

    def __init__(
        self, network: SimulatedNetwork, protocol: asyncio.BaseProtocol, peer: tuple[str, int]
    ) -> None:
        super().__init__(extra={"peername": peer})
        self._network = network
        self._protocol = protocol
        self._context = copy_context()
        self._is_closed = False
        self._is_lost = False
        self.out: _Pipe | None = None
        self.incoming: _Pipe | None = None
        self.peer: SimulatedSocket | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; what the other end does not read yet waits here."""
        if not self._is_closed and data:
            assert self.out is not None
            self.out.send(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send buffers as one message."""
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self._is_closed

    def close(self) -> None:
        """Close after what was sent."""
        self._end(None, is_reset=False)

    def abort(self) -> None:
        """Close at once."""
        self._end(None, is_reset=True)

    def _end(self, error: Exception | None, *, is_reset: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        assert self.out is not None
        self._network.links.pop(self, None)
        self.out.close(is_reset=is_reset)
        self._network.loop.call_soon(self._lose, error, context=self._context)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._protocol.connection_lost(error)

    def reset(self) -> None:
        """Break the link."""
        self._end(ConnectionResetError(errno.ECONNRESET, "the link broke"), is_reset=True)

    def arrived(self, data: bytes) -> None:
        """Hand bytes to the protocol in its own context."""
        if not self._is_closed:
            self._network.loop.deliver(self._context, self._receive, data)

    def _receive(self, data: bytes) -> None:
        self._network.charge(len(data))
        protocol: asyncio.BufferedProtocol = self._protocol  # type: ignore[assignment] # clients and nodes use no other
        rest = data
        while rest and not self._is_closed:
            # released at once: a protocol may enlarge what it has handed out
            with memoryview(protocol.get_buffer(len(rest))) as buffer:
                count = min(len(buffer), len(rest))
                buffer[:count] = rest if count == len(rest) else rest[:count]
            rest = rest[count:]
            protocol.buffer_updated(count)
        assert self.incoming is not None
        self.incoming.unread_bytes -= len(data)
        assert self.peer is not None
        self.peer.room_made()

    def ended(self, is_reset: bool) -> None:  # noqa: FBT001 - called by the loop
        """Take note that the other end closed or reset the link."""
        self._network.loop.deliver(self._context, self._peer_ended, is_reset)

    def _peer_ended(self, is_reset: bool) -> None:  # noqa: FBT001 - called by the loop
        error = ConnectionResetError(errno.ECONNRESET, "reset by peer") if is_reset else None
        self._end(error, is_reset=False)


class SimulatedListener:
    """A listening socket."""

    def __init__(self, network: SimulatedNetwork, host: str, port: int) -> None:
        self._network = network
        self._fd = network.take_descriptor(self)
        self.address = (host, port)
        self._backlog: list[SimulatedSocket] = []
        self._reader: asyncio.Handle | None = None
        self._is_closed = False

    def fileno(self) -> int:
        """Return the key by which the loop knows the socket."""
        return -1 if self._is_closed else self._fd

    def getsockname(self) -> tuple[str, int]:
        """Return the bound address."""
        return self.address

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        """Return the oldest connection; BlockingIOError when there is none."""
        if not self._backlog:
            raise BlockingIOError
        sock = self._backlog.pop(0)
        return sock, sock.getpeername()

    def offer(self, sock: SimulatedSocket) -> None:
        """Queue a connection."""
        self._backlog.append(sock)
        self._wake()

    def set_reader(self, handle: asyncio.Handle | None) -> bool:
        """Watch for connections, or no longer."""
        had, self._reader = self._reader, handle
        self._wake()
        return had is not None

    def _wake(self) -> None:
        handle = self._reader
        if handle is not None and self._backlog:
            self._network.loop.call_soon(self._event, handle, context=handle._context)  # type: ignore[attr-defined] # noqa: SLF001 - the watcher's own

    def _event(self, handle: asyncio.Handle) -> None:
        if self._reader is handle and self._backlog:
            handle._callback(*handle._args)  # type: ignore[attr-defined] # noqa: SLF001 - as the selector loop does
            self._wake()

    def close(self) -> None:
        """Listen no longer; connections that wait are reset."""
        if self._is_closed:
            return
        self._is_closed = True
        self._reader = None
        self._network.loop.sockets.pop(self._fd, None)
        self._network.listeners.pop(self.address, None)
        for sock in self._backlog:
            sock.reset()

    reset = close


class SimulatedConnector:
    """Connects clients; the loop's `create_connection`."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network

    async def connect(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect after the latency of a link; ConnectionRefusedError when none listens."""
        network = self._network
        answered = network.loop.create_future()
        network.loop.happen_after(2 * network.latency_us(), _answer, answered)
        await answered
        await network.reach(_own_host(), host)
        listener = network.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        protocol = make_protocol()
        transport = network.link(listener, protocol)
        protocol.connection_made(transport)
        return transport, protocol


def _own_host() -> str:
    """Return the host of the process that runs; clients are on none."""
    process = PROCESS.get()
    return CLIENTS if process is None else process.name.partition("/")[0]


def _answer(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SimulatedNetwork:
    """All hosts' listeners and links."""

    def __init__(self, loop: SimulatedLoop, rng: Random, settings: LinkRules | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.settings = settings or LinkRules()
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.cuts: dict[tuple[str, str], None] = {}
        """Hosts, from and to, between which nothing arrives."""
        self.lost: set[str] = set()
        """Hosts without power: they are silent, where a dead process resets and refuses."""
        self.is_cutting = False
        """Whether there are cuts or lost hosts."""
        self.held: dict[_Pipe, None] = {}
        """Where something waits for `heal`."""
        self._connecting: list[asyncio.Future[None]] = []
        self.links: dict[SimulatedTransport, None] = {}
        """Those whose client end is open."""
        self._descriptor_count = 2
        self._link_count = 0
        self._next_port = _FIRST_PORT
        loop.connect_through(SimulatedConnector(self))

    def take_descriptor(self, sock: Any) -> int:
        """Return a new descriptor, by which the loop finds the socket."""
        self._descriptor_count += 1
        self.loop.sockets[self._descriptor_count] = sock
        return self._descriptor_count

    def charge(self, size: int) -> None:
        """Charge a call that sends or takes bytes, with what is done with them."""
        if PROCESS.get() is not None:
            self.loop.charge("bytes of the network", _CALL_NS + size * _BYTE_NS)

    def latency_us(self) -> int:
        """Return how long the next message takes."""
        settings, rng = self.settings, self.rng
        lowest, highest = settings.latency_us
        latency_us = lowest + int(rng.random() * (highest - lowest))
        if rng.random() < settings.slow_probability:
            latency_us += int(rng.random() * settings.slow_us)
        return latency_us

    def listen(self, host: str, port: int) -> SimulatedListener:
        """Bind a listener; OSError EADDRINUSE when the address is taken."""
        if not port:
            port = self._next_port
            self._next_port += 1
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        listener = SimulatedListener(self, host, port)
        self.listeners[host, port] = listener
        return listener

    def link(
        self, listener: SimulatedListener, protocol: asyncio.BaseProtocol
    ) -> SimulatedTransport:
        """Make a link; the listener's end waits to be accepted."""
        self._link_count += 1
        number = self._link_count
        transport = SimulatedTransport(self, protocol, listener.address)
        sock = SimulatedSocket(self, listener.address, (_CLIENT_HOST, 30_000 + number % 30_000))
        source, target = _own_host(), listener.address[0]
        transport.out = sock.incoming = _Pipe(self, sock, f"{number}>", (source, target))
        sock.out = transport.incoming = _Pipe(self, transport, f"{number}<", (target, source))
        transport.peer = sock
        self.links[transport] = None
        process = PROCESS.get()
        if process is not None:
            process.on_death(transport.reset)
        self.loop.happen_after(0, listener.offer, sock)
        return transport

    def break_links(self, *hosts: str) -> None:
        """Reset every link, or those between two hosts, seen by both ends."""
        for transport in list(self.links):
            assert transport.out is not None
            if not hosts or sorted(transport.out.ends) == sorted(hosts):
                transport.reset()

    def cut(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Let nothing arrive until `heal`; with one_way bytes of the second host still do."""
        self.loop.trace.add(self.loop.now_us, "cut", one, other, one_way)
        self.cuts[one, other] = None
        if not one_way:
            self.cuts[other, one] = None
        self.is_cutting = True

    def heal(self) -> None:
        """Let everything arrive, also what was sent meanwhile."""
        self.loop.trace.add(self.loop.now_us, "heal", len(self.held))
        self.cuts.clear()
        self.is_cutting = bool(self.lost)
        held, self.held = self.held, {}
        for pipe in held:
            if self.lost.isdisjoint(pipe.ends):
                pipe.release()
            else:
                self.held[pipe] = None
        self._connect_again()

    def lose(self, host: str) -> None:
        """Cut a host's power: nothing leaves it or arrives, nor do refusals, until `restore`."""
        self.lost.add(host)
        self.is_cutting = True

    def restore(self, host: str) -> None:
        """Let a lost host answer again: what was connected to it is reset."""
        if host not in self.lost:
            return
        self.lost.remove(host)
        self.is_cutting = bool(self.cuts or self.lost)
        for pipe in [one for one in self.held if host in one.ends]:
            del self.held[pipe]
            pipe.lose()
        for transport in list(self.links):
            if transport.out is not None and host in transport.out.ends:
                transport.reset()
        self._connect_again()

    def _connect_again(self) -> None:
        connecting, self._connecting = self._connecting, []
        for one in connecting:
            _answer(one)

    def _is_cut(self, one: str, other: str) -> bool:
        is_lost = one in self.lost or other in self.lost
        return is_lost or (one, other) in self.cuts or (other, one) in self.cuts

    async def reach(self, one: str, other: str) -> None:
        """Wait while two hosts are cut off from each other, as a connection that is opened."""
        while self._is_cut(one, other):
            healed = self.loop.create_future()
            self._connecting.append(healed)
            await healed
