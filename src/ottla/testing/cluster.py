"""Real nodes in the test's process, each on its own thread and loop.

Kafka: org.apache.kafka.common.test.KafkaClusterTestKit, which needs a JVM; here a start of one node
takes a fraction of a second.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from concurrent.futures import FIRST_EXCEPTION, wait
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from ottla.config.problems import ConfigErrors
from ottla.errors import KafkaError
from ottla.testing.cluster_files import CONTROLLER, ClusterFiles, node_directory
from ottla.testing.errors import ClusterError, raised_at_the_call
from ottla.testing.fault_environment import ClusterClock, SharedFaults
from ottla.testing.fault_network import NetworkFaults
from ottla.testing.threaded_node import START_TIMEOUT_S, ThreadedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self, TypeVar

    from ottla.server.node.node import Node

    T = TypeVar("T")

ANSWER_TIMEOUT_S = 10.0
"""Of a broker that is not ours."""
RETENTION_TIMEOUT_S = 60.0
LEAVE_TIMEOUT_S = 6.0
"""Of all controlled shutdowns of a stop; each ends a second earlier."""
_PORT_ATTEMPTS = 5
_POLL_S = 0.005
TEST_DEFAULTS: Mapping[str, str] = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER,
    "listeners": f"PLAINTEXT://127.0.0.1:0,{CONTROLLER}://127.0.0.1:0",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",
}
"""Defaults for tests: free ports, no initial rebalance delay, few internal partitions."""
QUORUM_DEFAULTS: Mapping[str, str] = {
    "controller.quorum.election.timeout.ms": "400",
    "controller.quorum.fetch.timeout.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
}
"""Timeouts of several nodes: a failure is detected, and a killed broker registers again, in 2 s."""
_OWN_SETTINGS = (
    "node.id",
    "broker.id",
    "process.roles",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)
"""Settings that a cluster of several nodes sets itself."""


class Cluster:
    """Nodes 1, 2, …, each broker and controller: `start`, `bootstrap`, then `stop`; or `with`.

    Parameters:
        nodes: how many; with three, internal topics have three replicas.
        config: settings under Kafka's dotted names, over TEST_DEFAULTS and, with several nodes,
            QUORUM_DEFAULTS.
        data_dir: a directory that keeps the data; by default a temporary one that `stop` removes.

    Raises ClusterError for no nodes and for settings that the cluster sets itself, ConfigErrors for
    unknown and invalid ones at the start.

        >>> with Cluster(config={"log.retention.ms": 60_000}) as cluster:
        ...     with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        ...         print(producer.send_and_wait("orders", b"tea").offset)
        0
    """

    client_settings: Mapping[str, str] = MappingProxyType({})
    """Client settings besides the address: none."""

    @raised_at_the_call
    def __init__(
        self,
        *,
        nodes: int = 1,
        config: Mapping[str, object] | None = None,
        data_dir: str | None = None,
    ) -> None:
        if nodes < 1:
            raise ClusterError(f"nodes={nodes}: a cluster has at least one node")
        given = {name: as_text(value) for name, value in (config or {}).items()}
        _refuse_own(given, nodes)
        self.config = {**TEST_DEFAULTS, **given}
        """The settings of the node, or what several have in common."""
        if nodes > 1:
            replicas = str(min(3, nodes))
            self.config = {
                **TEST_DEFAULTS,
                **QUORUM_DEFAULTS,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": str(min(2, nodes)),
                "share.coordinator.state.topic.replication.factor": replicas,
                "share.coordinator.state.topic.min.isr": str(min(2, nodes)),
                "default.replication.factor": replicas,
                **given,
            }
        self._node_count = nodes
        self._keeps_data = data_dir is not None
        self._data_dir = data_dir
        self._nodes: dict[int, ThreadedNode] = {}
        self._snapshots = 0
        self.clock = ClusterClock(self._clock_moved)
        """The clock of all nodes; `clock.advance(days=8)`."""
        self._network = NetworkFaults(range(1, nodes + 1)) if nodes > 1 else None
        self._faults = SharedFaults(self.clock, self._network)

    @property
    @raised_at_the_call
    def network(self) -> NetworkFaults:
        """The links of the nodes: `cut`, `delay`, `drop`, `partition` and `heal`."""
        if self._network is None:
            raise ClusterError("a single node has no links to others; pause it, or give nodes=3")
        return self._network

    def _clock_moved(self) -> None:
        """Wait until the nodes have executed due timers and retention."""
        running = [node for node in self.nodes if node.is_running and not node.is_paused]
        for one in running:
            one.run(lambda node: node.clock_moved())
        deadline_s = time.monotonic() + RETENTION_TIMEOUT_S
        while any(one.run(lambda node: node.is_checking_retention) for one in running):
            if time.monotonic() > deadline_s:
                raise ClusterError(f"retention is not applied after {RETENTION_TIMEOUT_S} s")
            time.sleep(_POLL_S)

    @property
    def nodes(self) -> tuple[ThreadedNode, ...]:
        """The nodes that were started, running or not."""
        return tuple(self._nodes.values())

    @raised_at_the_call
    def node(self, node_id: int) -> ThreadedNode:
        """Return a node, running or not."""
        if node_id not in self._nodes:
            self._running()
            known = ", ".join(map(str, self._nodes))
            noun = "node" if self._node_count == 1 else "nodes"
            raise ClusterError(f"there is no node {node_id}: the cluster has {noun} {known}")
        return self._nodes[node_id]

    @property
    def is_running(self) -> bool:
        """Whether any node runs: started and not stopped, halted or killed since."""
        return any(node.is_running for node in self.nodes)

    @property
    @raised_at_the_call
    def bootstrap(self) -> str:
        """The addresses for `bootstrap.servers`: of all nodes, also of those that are down."""
        self._running()
        return ",".join(node.address for node in self.nodes)

    @property
    @raised_at_the_call
    def metrics_url(self) -> str:
        """The first node's address of /metrics; ClusterError unless `metrics.listener` is set."""
        return self._running()[0].metrics_url

    @property
    def data_dir(self) -> str:
        """The data directory; of several nodes, with one each below it."""
        if self._data_dir is None:
            self._data_dir = tempfile.mkdtemp(prefix="ottla-test-")
        return self._data_dir

    def _running(self) -> list[ThreadedNode]:
        running = [node for node in self.nodes if node.is_running]
        for halted in () if running else self.nodes:
            halted.check_halted()
        if not running:
            raise ClusterError("the cluster is not running; call start() or use it in `with`")
        return running

    def _selected(self, node_id: int | None) -> tuple[ThreadedNode, ...]:
        return self.nodes if node_id is None else (self.node(node_id),)

    # Start

    @raised_at_the_call
    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @raised_at_the_call
    def start(self, node_id: int | None = None) -> Self:
        """Start a node, or all that do not run, at once; returns when they serve requests.

        Raises what a node's start raises. Settings that do not exist are refused with ConfigErrors.
        A failed first start removes its files, except in a given data_dir. A node of several serves
        only while a majority runs.
        """
        if node_id is not None and self._nodes:
            self.node(node_id).start()
            return self
        if self._nodes and all(node.is_running for node in self.nodes):
            raise ClusterError("the cluster is running already")
        begins = self._data_dir is None
        try:
            self._start_all()
        except BaseException:
            if begins:
                self._remove_data()
            raise
        return self

    def _start_all(self) -> None:
        from ottla.server.system.ports import PortTaken

        for attempt in range(_PORT_ATTEMPTS):
            files = self._make_nodes()
            try:
                _start_together([node for node in self.nodes if not node.is_running])
            except PortTaken:
                if files is None or attempt + 1 == _PORT_ATTEMPTS:
                    raise
                files.remove()  # another process took a port: nothing was served yet
                self._nodes = {}
            else:
                return

    def _make_nodes(self) -> ClusterFiles | None:
        """Make the nodes before the first start; return the files of a cluster that is new."""
        if self._nodes:
            return None
        if self._node_count == 1:
            node = ThreadedNode(self.config, self.data_dir, self._faults)
            self.config = node.config
            self._nodes = {node.node_id: node}
            return None
        files = ClusterFiles(self.data_dir, self._node_count)
        listeners, is_new = files.prepare(self.config)
        self._nodes = {
            node_id: ThreadedNode(
                files.config_of(node_id, self.config, listeners),
                node_directory(self.data_dir, node_id),
                self._faults,
                may_format=False,
            )
            for node_id in listeners
        }
        return files if is_new else None

    @staticmethod
    def check_topic_settings(settings: Mapping[str, str]) -> None:
        """Raise ConfigErrors for names that topics do not have, with the nearest known one."""
        from ottla.config.topic import unknown_topic_settings

        problems = list(unknown_topic_settings(settings))
        if problems:
            raise ConfigErrors(problems)

    # Stop

    def stop(self, node_id: int | None = None) -> None:
        """Stop a node cleanly, keeping its data; or all, and remove a temporary data directory."""
        if node_id is not None:
            self.node(node_id).stop()
            return
        self.heal()
        try:
            self.shutdown()
        finally:
            self._remove_data()

    # Snapshots

    @raised_at_the_call
    def snapshot(self) -> int:
        """Keep the data of all nodes as they are now; return the number for `restore`.

        The nodes are stopped cleanly and started again. Segments are shared, not copied.
        """
        self._running()
        self.shutdown()
        self._snapshots += 1
        for node in self.nodes:
            _fork(node.data_dir, f"{self._snapshot_dir(self._snapshots)}/{node.node_id}")
        self.start()
        return self._snapshots

    @raised_at_the_call
    def restore(self, number: int) -> None:
        """Replace the data of all nodes by those of a snapshot, which stays for the next time."""
        if not 0 < number <= self._snapshots:
            raise ClusterError(f"there is no snapshot {number}: take one by snapshot()")
        self.heal()
        self.kill()
        for node in self.nodes:
            shutil.rmtree(node.data_dir)
            _fork(f"{self._snapshot_dir(number)}/{node.node_id}", node.data_dir)
        self.start()

    def _snapshot_dir(self, number: int) -> str:
        return f"{self.data_dir}.snapshots/{number}"

    def _remove_data(self) -> None:
        if self._snapshots:
            shutil.rmtree(f"{self.data_dir}.snapshots", ignore_errors=True)
            self._snapshots = 0
        if not self._keeps_data and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None
            self._nodes = {}

    def shutdown(self) -> None:
        """Stop all nodes cleanly and at once, but keep their data for the next `start`."""
        running = [node for node in self.nodes if node.is_started]
        if len(running) > 1:  # otherwise the last ones would stop without a controller
            leaving = [left for one in running if (left := one.begin_leave()) is not None]
            wait(leaving, LEAVE_TIMEOUT_S)
        stopped = [(node, node.begin_stop()) for node in running]
        errors = []
        for one, done in stopped:
            try:
                one.end(done)
            except Exception as error:  # noqa: BLE001 - the other threads must be ended, too
                errors.append(error)
        if errors:
            raise errors[0]

    def heal(self) -> None:
        """End all faults: resume nodes, repair disks and links. Killed nodes stay down."""
        for node in self.nodes:
            node.heal()
        if self._network is not None:
            self._network.heal()

    def kill(self, node_id: int | None = None) -> None:
        """End a node, or all, as `kill -9` would; data stay for the next `start`."""
        for one in self._selected(node_id):
            one.kill()

    @raised_at_the_call
    def restart(self, node_id: int | None = None) -> Self:
        """Stop a node, or all, cleanly and start again on the same data and ports."""
        if node_id is not None:
            self.node(node_id).restart()
            return self
        self.shutdown()
        return self.start()

    @raised_at_the_call
    def pause(self, node_id: int) -> None:
        """Suspend a node until `resume`, as SIGSTOP would: its connections stay open."""
        self.node(node_id).pause()

    @raised_at_the_call
    def resume(self, node_id: int) -> None:
        """Resume a paused node."""
        self.node(node_id).resume()

    # State

    def run(self, function: Callable[[Node], T], node_id: int | None = None) -> T:
        """Call a function of a node, or of the first that runs, on its loop; return its result."""
        if node_id is not None:
            return self.node(node_id).run(function)
        return next(node for node in self._running() if not node.is_paused).run(function)

    @property
    def controller_id(self) -> int | None:
        """The node whose controller is active; None while there is none."""
        found = [
            (one.run(lambda node: node.controller.quorum.leader_epoch), one.node_id)
            for one in self.nodes
            if one.is_running and not one.is_paused and one.run(lambda node: node.controller.active)
        ]
        return max(found)[1] if found else None  # an isolated former controller may not know it yet

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Return the node that leads a partition; None while none does.

        ClusterError for a partition that does not exist.
        """

        def look(node: Node) -> int | None:
            found = node.broker.image.topics.partition(topic, partition)
            if found is None:
                raise ClusterError(f"there is no partition {topic}-{partition}")
            return found.leader if found.leader >= 0 else None

        return self.run(look, self.controller_id)


def _fork(source: str, target: str) -> None:
    """Make a branch of a node's directory that can take its place."""
    from ottla.branches.branch import BranchRequest, DirectoryBranch
    from ottla.server.system.files import RealDirectory, make_directory

    make_directory(str(Path(target).parent))
    root = os.path.commonpath((Path(source).parent, Path(target).parent))
    request = BranchRequest(os.path.relpath(source, root), os.path.relpath(target, root))
    DirectoryBranch(RealDirectory(root), request, now_ms=int(time.time() * 1000)).run()


def _start_together(nodes: Sequence[ThreadedNode]) -> None:
    """Start nodes at once; when one fails, none runs."""
    try:
        started = [node.begin_start() for node in nodes]
        done, left = wait(started, START_TIMEOUT_S, FIRST_EXCEPTION)
        for start in done:
            start.result()
        if left:
            raise ClusterError(f"{len(left)} of the nodes do not serve after {START_TIMEOUT_S} s")
    except BaseException:
        for node in nodes:
            node.abort_start()
        raise
    for node in nodes:
        node.started()


def _refuse_own(given: Mapping[str, str], nodes: int) -> None:
    """Raise ClusterError for settings that cannot be given to a cluster."""
    if not {"log.dirs", "log.dir"}.isdisjoint(given):
        raise ClusterError("log.dirs: use data_dir for the data directory")
    for name in _OWN_SETTINGS if nodes > 1 else ():
        if name in given:
            raise ClusterError(f"{name}: a cluster of several nodes sets it itself")


class ForeignCluster:
    """An external broker (--ottla-url): it cannot be started, stopped or killed."""

    is_running = True

    def __init__(self, bootstrap: str, client_settings: Mapping[str, str] | None = None) -> None:
        """`client_settings` are Kafka's: `security.protocol`, `sasl.…`, `ssl.…`."""
        self.bootstrap = bootstrap
        self.client_settings = client_settings or {}

    @raised_at_the_call
    def __enter__(self) -> Self:
        """Check that the broker responds: otherwise each test would wait for it."""
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
        """Accept all names: the broker may have settings that Ottla does not know."""

    def _refuse(self, _node_id: int | None = None) -> NoReturn:
        raise ClusterError(f"{self.bootstrap} cannot be controlled by tests (--ottla-url)")

    kill = shutdown = restart = start = stop = pause = resume = snapshot = restore = _refuse


def as_text(value: object) -> str:
    """Return a setting's value as the text in a properties file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(entry) for entry in value)
    return str(value)
