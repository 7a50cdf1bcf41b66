"""One whole node on a simulated host, and native clients that talk to it.

Everything that ships runs here unchanged but the sockets, threads, files and clocks. Kafka: none.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.admin.admin import AsyncAdmin
from ottla.clients.consumer.consumer import AsyncConsumer
from ottla.clients.producer.producer import AsyncProducer
from ottla.clients.share.consumer import AsyncShareConsumer
from ottla.config.broker import parse_broker_config
from ottla.server.node.node import Node
from ottla.testing.cluster import TEST_DEFAULTS
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.testing.simulation.environment import SimulatedClientEnvironment, SimulatedEnvironment
from ottla.testing.simulation.loop import SimulatedLoop, Trace
from ottla.testing.simulation.network import SimulatedNetwork
from ottla.testing.simulation.process import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Mapping

T = TypeVar("T")
HOST = "node1"
DATA_PATH = "/data"
PORT = 9092
CONTROLLER_PORT = 9093
_DISK_SEEDS = 1_000_003
_FOR_EVER_US = 1 << 50
_FILE_CALL_NS = 8_000
"""What a file call takes that waits for no disk: for names, and for bytes of the page cache."""
_SYNC_NS = 2_000_000
"""What the loop of a node that serves waits for a flush."""
_FILE_BYTE_NS = 0.3
"""For each byte that is copied, or given back to the file system."""


def defaults_of(host: str) -> dict[str, str]:
    """Return the settings of a node on a host that forms a cluster alone."""
    return {
        **TEST_DEFAULTS,
        "listeners": f"PLAINTEXT://{host}:{PORT},CONTROLLER://{host}:{CONTROLLER_PORT}",
        "controller.quorum.bootstrap.servers": f"{host}:{CONTROLLER_PORT}",
        "log.dirs": DATA_PATH,
    }


class SimulatedNode:
    """A node, its disk, and a network; `run` drives a coroutine that starts and uses them.

    The same seed and the same coroutine give the same events, whatever PYTHONHASHSEED is.
    """

    def __init__(
        self,
        seed: int,
        *,
        config: Mapping[str, str] | None = None,
        keep_lines: bool = False,
        network: SimulatedNetwork | None = None,
        host: str = HOST,
    ) -> None:
        """Take Kafka's dotted names over defaults for tests; keep_lines keeps the trace's text.

        A node of a cluster shares the network of the others and has an own host.
        """
        self.seed = seed
        if network is None:
            loop = SimulatedLoop(Trace(keep_lines=keep_lines))
            network = SimulatedNetwork(loop, Random(f"{seed}/network"))  # noqa: S311 - repeatable
        self.loop = network.loop
        self.network = network
        self.host = host
        self.bootstrap = f"{host}:{PORT}"
        self.clock_rate = 1.0
        """How fast the host's clocks run; holds for the next start."""
        self.on_built: Callable[[SimulatedNode], None] | None = None
        """Called with each node of this host that is built, before it starts."""
        self._disk_latency_us = (50, 3000)
        self._volume_latency_us: dict[Hashable, tuple[int, int]] = {}
        self._clock_step_ms = 0
        self._environment: SimulatedEnvironment | None = None
        self.config = {**defaults_of(host), **(config or {})}
        paths = self.config["log.dirs"].split(",")
        if "metadata.log.dir" in self.config:
            paths.append(self.config["metadata.log.dir"])
        self.disks = {
            path: self._make_disk(number, path) for number, path in enumerate(dict.fromkeys(paths))
        }
        """One for each of log.dirs and for metadata.log.dir."""
        self.disk = next(iter(self.disks.values()))
        self.life_count = 0
        """How often a node was started."""
        self.node: Node | None = None
        self._process: Process | None = None
        self._client_count = 0
        self._dead: list[object] = []
        """What a dead process left: its clean-up code must never run."""

    @property
    def disk_latency_us(self) -> tuple[int, int]:
        """How long flushes and reads of workers take, between these; from now on."""
        return self._disk_latency_us

    @disk_latency_us.setter
    def disk_latency_us(self, latency_us: tuple[int, int]) -> None:
        self._disk_latency_us = latency_us
        self._set_environment()

    def hang(self, path: str) -> None:
        """Let workers' calls to the disk of a log directory last for ever, from now on."""
        self._volume_latency_us[self.disks[path]] = (_FOR_EVER_US, _FOR_EVER_US)
        self._set_environment()

    @property
    def clock_step_ms(self) -> int:
        """How far the host's wall clock is set ahead; from now on."""
        return self._clock_step_ms

    @clock_step_ms.setter
    def clock_step_ms(self, step_ms: int) -> None:
        self._clock_step_ms = step_ms
        self._set_environment()

    def _set_environment(self) -> None:
        if self._environment is not None:
            self._environment.disk_latency_us = self._disk_latency_us
            self._environment.volume_latency_us = self._volume_latency_us
            self._environment.wall.step_ms = self._clock_step_ms

    @property
    def trace(self) -> Trace:
        """The events so far."""
        return self.loop.trace

    @property
    def process(self) -> Process | None:
        """The process that runs, or ran last."""
        return self._process

    @property
    def is_alive(self) -> bool:
        """Whether a process runs."""
        return self._process is not None and self._process.is_alive

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; raises what any callback raised."""
        return self.loop.run(work)

    def _make_disk(self, number: int, path: str) -> SimulatedDisk:
        disk = SimulatedDisk(self.seed + number * _DISK_SEEDS)
        mount = "" if self.host == HOST else f"{self.host}:"
        if number:
            mount += f"{path}/"
        disk.on_call = partial(self._file_call, disk, mount)
        disk.on_crash = self._crashed
        return disk

    def _file_call(self, disk: SimulatedDisk, mount: str, kind: str, path: str, size: int) -> None:
        loop = self.loop
        disk.now_ms = loop.now_us // 1000
        loop.trace.add(loop.now_us, "file", kind, mount + path, size)
        if not kind.startswith("sync"):
            loop.charge(kind, _FILE_CALL_NS + int(size * _FILE_BYTE_NS))
        elif self._process is not None and self._process.is_serving and not loop.is_in_worker:
            loop.charge(kind, _SYNC_NS)

    def _crashed(self) -> None:
        if self._process is not None:
            self._process.kill()

    # The node

    async def start(self) -> None:
        """Start a node on the disk; SimulatedCrash when it dies before it serves."""
        assert not self.is_alive, "one process at a time has the disk"
        self.life_count += 1
        self.network.restore(self.host)
        process = Process(f"{self.host}/{self.life_count}", clock_rate=self.clock_rate)
        self._process = process
        environment = SimulatedEnvironment(
            self.loop,
            self.network,
            self.disks,
            process,
            host=self.host,
            seed=f"{self.seed}/{process.name}",
        )
        self._environment = environment
        self._set_environment()
        await self._in_process(process, self._serve(environment))
        process.is_serving = True

    async def _serve(self, environment: SimulatedEnvironment) -> None:
        self.node = Node(parse_broker_config(self.config), environment, may_format=True)
        if self.on_built is not None:
            self.on_built(self)
        await self.node.start()

    async def stop(self) -> None:
        """Stop the node cleanly; SimulatedCrash when it dies meanwhile, or is dead."""
        assert self._process is not None
        assert self.node is not None
        if not self._process.is_alive:
            raise SimulatedCrash
        self._process.is_serving = False
        await self._in_process(self._process, self.node.stop())
        self._process.kill()
        for disk in self.disks.values():
            disk.kill()

    async def _in_process(self, process: Process, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work, context=process.context())
        died = self.loop.create_future()
        process.on_death(lambda: None if died.done() else died.set_result(None))
        await asyncio.wait((task, died), return_when=asyncio.FIRST_COMPLETED)
        if not process.is_alive:
            self._dead += [task, self.node]
            raise SimulatedCrash
        task.result()

    @property
    def is_paused(self) -> bool:
        """Whether its process is alive and stopped."""
        process = self._process
        return process is not None and process.is_alive and not process.is_running

    def pause(self) -> None:
        """Stop the process as SIGSTOP does, or its virtual machine is frozen, until `resume`."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Let a paused process go on: its timers are late, and its connections may be closed."""
        if self._process is not None and self._process.is_alive:
            self.loop.resume(self._process)

    def kill(self, *, power: bool) -> None:
        """End the process, or cut the power: then the disk loses what was not synced.

        A process that ends resets its connections, and its ports refuse others; a host without
        power is silent until it starts again.
        """
        if power:
            self.network.lose(self.host)
        if self._process is not None:
            self._process.kill()
        self._dead.append(self.node)
        for disk in self.disks.values():
            if power:
                disk.crash()
            else:
                disk.kill()

    # Clients

    def client_environment(self) -> SimulatedClientEnvironment:
        """Return clocks and randomness for one client."""
        self._client_count += 1
        return SimulatedClientEnvironment(self.loop, f"{self.seed}/client/{self._client_count}")

    def producer(self, **settings: Any) -> AsyncProducer:
        """Return a producer of this node."""
        settings = {"bootstrap_servers": self.bootstrap, **settings}
        return AsyncProducer(environment=self.client_environment(), **settings)

    def consumer(self, *topics: str, **settings: Any) -> AsyncConsumer:
        """Return a consumer of this node."""
        settings = {"bootstrap_servers": self.bootstrap, **settings}
        return AsyncConsumer(*topics, environment=self.client_environment(), **settings)

    def share_consumer(self, *topics: str, **settings: Any) -> AsyncShareConsumer:
        """Return a share consumer of this node."""
        settings = {"bootstrap_servers": self.bootstrap, **settings}
        return AsyncShareConsumer(*topics, environment=self.client_environment(), **settings)

    def admin(self, **settings: Any) -> AsyncAdmin:
        """Return an admin client of this node."""
        settings = {"bootstrap_servers": self.bootstrap, **settings}
        return AsyncAdmin(environment=self.client_environment(), **settings)
