"""A real node in the test's process, on its own thread and loop.

Kafka: org.apache.kafka.common.test.KafkaClusterTestKit, which needs a JVM; here a start takes a
fraction of a second.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from ottla.config.definition import Type
from ottla.config.problems import ConfigErrors, nearest
from ottla.errors import KafkaError
from ottla.testing.tracebacks import raised_at_the_call

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Self, TypeVar

    from ottla.config.broker import BrokerConfig
    from ottla.server.node.node import Node

    T = TypeVar("T")

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 30.0
TEST_DEFAULTS: Mapping[str, str] = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
}
"""What tests want: free ports, no waiting for members that never come, few internal files."""


class ClusterError(RuntimeError):
    """The cluster was asked for something it cannot do; one line."""


class Cluster:
    """One node; `start`, then `bootstrap`, then `stop`. Also a context manager.

    `config` takes Kafka's dotted names over TEST_DEFAULTS; `data_dir` keeps the data (else a
    temporary directory that `stop` removes).
    """

    client_settings: Mapping[str, str] = MappingProxyType({})
    """What clients need besides the address: nothing."""

    @raised_at_the_call
    def __init__(
        self,
        *,
        nodes: int = 1,
        config: Mapping[str, object] | None = None,
        data_dir: str | None = None,
    ) -> None:
        if nodes != 1:
            raise ClusterError("clusters of several nodes come with a later part of Ottla")
        if config and not {"log.dirs", "log.dir"}.isdisjoint(config):
            raise ClusterError("log.dirs: the data go to data_dir, give that")
        given = {name: as_text(value) for name, value in (config or {}).items()}
        self.config = {**TEST_DEFAULTS, **given}
        self._keeps_data = data_dir is not None
        self._data_dir = data_dir
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._node is not None

    @property
    @raised_at_the_call
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        return self._running().bootstrap

    @property
    @raised_at_the_call
    def metrics_url(self) -> str:
        """The address of /metrics; ClusterError unless `metrics.listener` is configured."""
        url = self._running().http.url
        if url is None:
            raise ClusterError("set metrics.listener, for instance to 127.0.0.1:0")
        return url

    @property
    def data_dir(self) -> str:
        """The node's data directory."""
        if self._data_dir is None:
            self._data_dir = tempfile.mkdtemp(prefix="ottla-test-")
        return self._data_dir

    def _running(self) -> Node:
        if self._node is None:
            raise ClusterError("the cluster is not running; call start() or use it in `with`")
        return self._node

    @raised_at_the_call
    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @raised_at_the_call
    def start(self) -> Self:
        """Start the node; returns when it serves requests. Raises what the node's start raises.

        Settings that do not exist are refused with ConfigErrors. A start that fails leaves nothing
        behind but a data_dir that was given.
        """
        if self._node is not None:
            raise ClusterError("the cluster is running already")
        begins = self._data_dir is None
        try:
            return self._start()
        except BaseException:
            if begins:
                self._remove_data()
            raise

    def _start(self) -> Self:
        from ottla.config.broker import parse_broker_config
        from ottla.server.node.node import Node
        from ottla.server.system.real import RealEnvironment

        config = parse_broker_config({**self.config, "log.dirs": self.data_dir})
        _refuse_unknown(config)
        self._loop = _new_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name="ottla-node", daemon=True
        )
        self._thread.start()

        async def start() -> Node:
            node = Node(config, RealEnvironment(), may_format=True)
            await node.start()
            return node

        try:
            node = self._call(start(), START_TIMEOUT_S)
        except BaseException:
            self._end_loop()
            raise
        self._node = node
        # a restart must find the same address, as a real server's would be
        self.config["listeners"] = _fixed_ports(self.config["listeners"], node.addresses)
        if node.http.address is not None:
            host, port = node.http.address
            self.config["metrics.listener"] = f"{host}:{port}"
        return self

    @staticmethod
    def check_topic_settings(settings: Mapping[str, str]) -> None:
        """Raise ConfigErrors for names that topics do not have, with the nearest known one."""
        from ottla.config.topic import unknown_topic_settings

        problems = list(unknown_topic_settings(settings))
        if problems:
            raise ConfigErrors(problems)

    def stop(self) -> None:
        """Stop the node cleanly and remove a temporary data directory; nothing when not running."""
        try:
            self.shutdown()
        finally:
            self._remove_data()

    def _remove_data(self) -> None:
        if not self._keeps_data and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None

    def shutdown(self) -> None:
        """Stop the node cleanly, but keep its data for the next `start`."""
        node, self._node = self._node, None
        if node is not None:
            try:
                self._call(node.stop(), STOP_TIMEOUT_S)
            finally:
                self._end_loop()

    def kill(self) -> None:
        """End the node as `kill -9` would: no flush, no marker; data stay for the next `start`."""
        node, self._node = self._node, None
        if node is not None:
            try:
                self._call(_killed(node), STOP_TIMEOUT_S)
            finally:
                self._end_loop()

    def restart(self) -> Self:
        """Stop cleanly and start again on the same data and ports."""
        self.shutdown()
        return self.start()

    def run(self, function: Callable[[Node], T]) -> T:
        """Call a function of the node on its own loop and return what it returns."""
        node = self._running()

        async def call() -> T:
            return function(node)

        return self._call(call(), STOP_TIMEOUT_S)

    def _call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(STOP_TIMEOUT_S)
            loop.close()


class ForeignCluster:
    """Somebody else's broker, for the same tests: nothing can be started, stopped or killed."""

    is_running = True

    def __init__(self, bootstrap: str, client_settings: Mapping[str, str] | None = None) -> None:
        """`client_settings` are Kafka's: `security.protocol`, `sasl.…`, `ssl.…`."""
        self.bootstrap = bootstrap
        self.client_settings = client_settings or {}

    @raised_at_the_call
    def __enter__(self) -> Self:
        """Ask whether it is there: tests would otherwise wait for it one by one."""
        from ottla.clients.blocking import Admin

        try:
            with Admin(config=self.client_settings, bootstrap_servers=self.bootstrap) as admin:
                admin.describe_cluster(timeout=ANSWER_TIMEOUT_S)
        except KafkaError as error:
            raise ClusterError(f"--ottla-url {self.bootstrap}: {error}") from None
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def check_topic_settings(self, settings: Mapping[str, str]) -> None:
        """Leave it to the broker, which may have settings that Ottla does not know."""

    def _refuse(self) -> NoReturn:
        raise ClusterError(f"{self.bootstrap} is not ours to stop (--ottla-url)")

    kill = shutdown = restart = start = _refuse


def as_text(value: object) -> str:
    """Return a setting's value as it stands in a file of Kafka."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(entry) for entry in value)
    return str(value)


def _refuse_unknown(config: BrokerConfig) -> None:
    """Raise ConfigErrors for names that nothing reads; plug-ins may have names of their own."""
    has_plugins = any(
        definition.type is Type.CLASS or name == "metric.reporters"
        for name, definition in config.keys.items()
        if name in config.given
    )
    problems = [
        one for one in config.unknown_settings if not has_plugins or nearest(one.name, config.keys)
    ]
    if problems:
        raise ConfigErrors(problems)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


async def _killed(node: Node) -> None:
    node.kill()


def _fixed_ports(listeners: str, addresses: Mapping[str, tuple[str, int]]) -> str:
    fixed = []
    for entry in listeners.split(","):
        name, _, rest = entry.strip().partition("://")
        host, _, port = rest.rpartition(":")
        number = addresses[name][1] if int(port) == 0 else int(port)
        fixed.append(f"{name}://{host}:{number}")
    return ",".join(fixed)
