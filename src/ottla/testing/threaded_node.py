"""A real node in the test's process, on a thread and a loop of its own.

Kafka: a BrokerServer and ControllerServer of org.apache.kafka.common.test.KafkaClusterTestKit.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.config.definition import Type
from ottla.config.problems import ConfigErrors, nearest
from ottla.testing.errors import ClusterError, raised_at_the_call
from ottla.testing.fault_disk import DiskFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from concurrent.futures import Future
    from typing import Self, TypeVar

    from ottla.config.broker import BrokerConfig
    from ottla.server.node.node import Node
    from ottla.testing.fault_environment import SharedFaults

    T = TypeVar("T")

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
"""They only end what would hang: a busy machine may stand still for a while."""


class ThreadedNode:
    """One node of a `Cluster`, by `cluster.node(2)`."""

    def __init__(
        self,
        config: Mapping[str, str],
        data_dir: str,
        faults: SharedFaults,
        *,
        may_format: bool = True,
    ) -> None:
        """Take all settings but the directory; may_format lets it be formatted alone."""
        self.config = dict(config)
        number = self.config["node.id"].strip()
        self.node_id = int(number) if number.isdecimal() else 1
        self.address = ""
        """For `bootstrap.servers`; of the last start."""
        self.data_dir = data_dir
        self._faults = faults
        self.disk = DiskFaults()
        """Its disks: `fill`, `freeze`, `lose` and `heal`."""
        self._may_format = may_format
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting: asyncio.Task[None] | None = None
        self._paused: threading.Event | None = None
        self._is_killed = False

    @property
    def is_running(self) -> bool:
        """Whether it serves: started, and neither stopped, halted nor killed; it may be paused."""
        return self._node is not None and self.halt_reason is None

    @property
    def is_started(self) -> bool:
        """Whether there is a node to stop: one that runs or has halted."""
        return self._node is not None

    @property
    def halt_reason(self) -> Exception | None:
        """Why the node has halted, None unless it has: its last disk or the metadata log failed."""
        return None if self._node is None else self._node.failure

    @property
    def is_paused(self) -> bool:
        """Whether it does nothing until `resume`."""
        return self._paused is not None

    @property
    @raised_at_the_call
    def metrics_url(self) -> str:
        """The address of /metrics; ClusterError unless `metrics.listener` is configured."""
        url = self._running().http.url
        if url is None:
            raise ClusterError("set metrics.listener, for instance to 127.0.0.1:0")
        return url

    def _running(self) -> Node:
        if self._node is None:
            raise ClusterError("the cluster is not running; call start() or use it in `with`")
        self.check_halted()
        return self._node

    def check_halted(self) -> None:
        """Raise ClusterError with the reason when the node has halted."""
        if self.halt_reason is not None:
            raise ClusterError(
                f"node {self.node_id} has halted: {self.halt_reason}; heal its disk, then start it"
            )

    # Start

    @raised_at_the_call
    def start(self) -> Self:
        """Start the node; returns when it serves requests. Raises what the node's start raises."""
        started = self.begin_start()
        try:
            started.result(START_TIMEOUT_S)
        except BaseException:
            self.abort_start()
            raise
        self.started()
        return self

    def begin_start(self) -> Future[None]:
        """Begin the start; the future is done once the node serves.

        `started` or `abort_start` must follow.
        """
        from ottla.config.broker import parse_broker_config
        from ottla.server.node.node import Node  # here: two threads that import may fail

        if self.halt_reason is not None:
            self.kill()
        if self._node is not None:
            raise ClusterError("the cluster is running already")
        config = parse_broker_config({**self.config, "log.dirs": self.data_dir})
        _refuse_unknown(config)
        self._loop = self._faults.new_loop(self.node_id)
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name=f"ottla-node-{self.node_id}", daemon=True
        )
        self._thread.start()

        async def start() -> None:
            self._starting = asyncio.current_task()
            environment = self._faults.environment(self.node_id, self.disk)
            node = Node(config, environment, may_format=self._may_format)
            await node.start()
            self._node = node

        return asyncio.run_coroutine_threadsafe(start(), self._loop)

    def started(self) -> None:
        """Store the addresses, so that a restart uses the same ones."""
        node = self._running()
        self.address = node.bootstrap
        self.config["listeners"] = _fixed_ports(self.config["listeners"], node.addresses)
        if node.http.address is not None:
            host, port = node.http.address
            self.config["metrics.listener"] = f"{host}:{port}"

    def abort_start(self) -> None:
        """End a start that failed or timed out; no-op if none was begun."""
        if self._node is not None:
            self.kill()
        elif self._loop is not None:
            with suppress(Exception):
                self._call(self._cancel_start(), STOP_TIMEOUT_S)
            self._end_loop()

    async def _cancel_start(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait((self._starting,))
            await asyncio.sleep(0)  # lets its connections end

    # Stop

    def begin_leave(self) -> Future[None] | None:
        """Begin the controlled shutdown, so that `stop` is quick; None when it does not run."""
        self.resume()
        if self._node is None or self._loop is None:
            return None
        return asyncio.run_coroutine_threadsafe(self._node.leave(), self._loop)

    def begin_stop(self) -> Future[None] | None:
        """Begin to stop cleanly; None when it does not run. `end` must follow."""
        self.resume()
        if self._node is None or self._loop is None:
            return None
        return asyncio.run_coroutine_threadsafe(self._node.stop(), self._loop)

    def end(self, stopped: Future[None] | None) -> None:
        """Wait until a stop is complete, and end the thread."""
        self._node = None
        try:
            if stopped is not None:
                stopped.result(STOP_TIMEOUT_S)
        finally:
            self._end_loop()

    def stop(self) -> None:
        """Stop cleanly and keep the data for the next `start`; no-op if it does not run."""
        self.end(self.begin_stop())

    def kill(self) -> None:
        """End as `kill -9` would: no flush, no marker; data stay for the next `start`."""
        node, self._node = self._node, None
        if node is None:
            return
        self._is_killed = True
        self.resume()

        async def die() -> None:
            self._die(node)

        try:
            self._call(die(), STOP_TIMEOUT_S)
        finally:
            self._end_loop()

    def _die(self, node: Node) -> None:
        if self._is_killed:
            self._is_killed = False
            node.kill()

    def restart(self) -> Self:
        """Stop cleanly and start again on the same data and ports."""
        self.stop()
        return self.start()

    @raised_at_the_call
    def pause(self) -> None:
        """Suspend the node until `resume`, as SIGSTOP would: its connections stay open."""
        node = self._running()
        if self._paused is not None or self._loop is None:
            return
        resumed, paused = threading.Event(), threading.Event()

        def wait() -> None:
            paused.set()
            resumed.wait()
            self._die(node)  # a process that is killed while it is stopped does nothing more

        self._paused = resumed
        self._loop.call_soon_threadsafe(wait)
        paused.wait(STOP_TIMEOUT_S)

    def resume(self) -> None:
        """Resume a paused node; no-op if it is not paused."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.set()

    def heal(self) -> None:
        """End the node's faults: it is resumed, and its disks work again."""
        self.resume()
        self.disk.heal()

    # Its loop

    def run(self, function: Callable[[Node], T]) -> T:
        """Call a function of the node on its own loop and return what it returns."""
        node = self._running()
        if self._paused is not None:
            raise ClusterError(f"node {self.node_id} is paused")

        async def call() -> T:
            return function(node)

        return self._call(call(), STOP_TIMEOUT_S)

    def _call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = self._starting = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(STOP_TIMEOUT_S)
            if thread.is_alive():  # a callback hangs: the thread ends with the process
                raise ClusterError(f"the thread of node {self.node_id} does not end")
            loop.close()


def _refuse_unknown(config: BrokerConfig) -> None:
    """Raise ConfigErrors for unknown names; plug-ins may have their own."""
    has_plugins = any(
        definition.type is Type.CLASS or name == "metric.reporters"
        for name, definition in config.keys.items()
        if name in config.given
    )
    problems = [
        setting
        for setting in config.unknown_settings
        if not has_plugins or nearest(setting.name, config.keys)
    ]
    if problems:
        raise ConfigErrors(problems)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _fixed_ports(listeners: str, addresses: Mapping[str, tuple[str, int]]) -> str:
    fixed = []
    for entry in listeners.split(","):
        name, _, rest = entry.strip().partition("://")
        host, _, port = rest.rpartition(":")
        number = addresses[name][1] if int(port) == 0 else int(port)
        fixed.append(f"{name}://{host}:{number}")
    return ",".join(fixed)
