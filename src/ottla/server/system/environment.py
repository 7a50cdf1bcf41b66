"""The environment of a node: everything that it takes from its machine, as one argument.

`real.RealEnvironment` is the machine that the process runs on, `ottla.testing.SimulatedEnvironment`
that of a simulation. Nothing else in `server` knows sockets, threads, files, clocks or randomness.

Kafka: org.apache.kafka.common.utils.Time, java.nio, and other services of a JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Hashable, Sequence
    from random import Random

    from ottla.clock import Clock
    from ottla.http.host import Access, Page
    from ottla.storage.directory import Directory
    from ottla.types import Uuid

T = TypeVar("T")


class RunInWorker(Protocol):
    """Runs a blocking call outside the loop."""

    def __call__(
        self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None], /
    ) -> None:
        """Run the job in a worker, then done(result, error) on the loop."""


class RunOnVolume(Protocol):
    """Runs a call that waits for a disk, outside the loop."""

    def __call__(
        self,
        volume: Hashable,
        job: Callable[[], T],
        done: Callable[[T | None, Exception | None], None],
        /,
    ) -> None:
        """Run the job in a worker of the volume, then done(result, error) on the loop."""


class WorkerPool(Protocol):
    """Worker threads of one loop."""

    def run(self, job: Callable[[], T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Run the job in a worker, then done(result, error) on the loop; ignored once closed."""

    def close(self) -> None:
        """Wait for the running jobs; later ones are ignored."""


class DetachedPool(WorkerPool, Protocol):
    """Threads for calls that may never end; a stop waits for them for a limited time."""

    is_ended: bool
    """Whether all calls had ended when it was closed."""


class HttpService(Protocol):
    """A bound HTTP server."""

    address: tuple[str, int]

    def start(self, make_pages: Callable[[], Sequence[Page]], access: Access | None = None) -> None:
        """Serve pages within a second or after `begin`."""

    def begin(self) -> None:
        """Begin to serve at once."""

    def stop(self) -> None:
        """Close the server."""


class SocketOptions(NamedTuple):
    """Sizes of a listening socket's queue and buffers; -1 leaves a buffer to the system."""

    backlog: int = 0
    send_bytes: int = -1
    receive_bytes: int = -1


class Network(Protocol):
    """Addresses, names and listening sockets."""

    def listen(self, host: str, port: int, options: SocketOptions) -> socket.socket:
        """Return a non-blocking listening socket; OSError when the address cannot be bound."""

    def host_name(self) -> str:
        """Return the name by which other machines reach this one."""

    def addresses_of(self, host: str) -> set[str]:
        """Return the addresses of a host; empty when the name is unknown."""

    def holder_of_port(self, port: int) -> str | None:
        """Name the process that listens on a port: "pid 12 (java)"; None when unknown."""

    def bind_http(self, host: str, port: int) -> HttpService:
        """Bind an HTTP server; OSError."""


class Limits(NamedTuple):
    """Limits of the process."""

    memory_bytes: int
    descriptors: int
    """Open files and sockets; negative when unlimited."""


class Stopwatch(Protocol):
    """Clocks that measure the cost of work; no decision may depend on them."""

    is_real: bool
    """Whether work takes time on them."""

    def elapsed_s(self) -> float:
        """Seconds since an arbitrary point, of high resolution."""

    def cpu_s(self) -> float:
        """CPU seconds of the calling thread."""


class Environment(Protocol):
    """The environment of one node."""

    clock: Clock
    rng: Random
    """For session ids, placement and names; not for secrets."""
    network: Network
    stopwatch: Stopwatch

    def new_uuid(self) -> Uuid:
        """Return a random version 4 id."""

    def secret_bytes(self, count: int) -> bytes:
        """Return random bytes for nonces and keys."""

    def open_directory(self, path: str) -> Directory:
        """Return a directory, made when missing."""

    def start_workers(
        self, loop: asyncio.AbstractEventLoop, count: int = 2, volume: Hashable = None
    ) -> WorkerPool:
        """Return workers that complete on this loop; volume names the disk they wait for."""

    def start_detached(self, loop: asyncio.AbstractEventLoop) -> DetachedPool:
        """Return as many workers as calls run at a time, which complete on this loop."""

    def limits(self) -> Limits:
        """Return the limits of the process."""

    def yield_processor(self) -> None:
        """Let other processes that are ready to run go first on this core."""
