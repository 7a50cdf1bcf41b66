"""One node: its sockets, its disk, its loop, and the roles on it.

Kafka: kafka.server.KafkaRaftServer, SharedServer.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.broker import ListenerAddress
from ottla.network.limits import sweep_interval_ms
from ottla.replication.replica_set import ReplicaSet
from ottla.server.broker.broker import Broker
from ottla.server.broker.coordinator_log import TopicLog
from ottla.server.broker.group_config import group_coordinator_config
from ottla.server.broker.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from ottla.server.broker.maintenance import Maintenance
from ottla.server.broker.metadata import BrokerMetadata
from ottla.server.broker.metadata_log import MetadataLog
from ottla.server.broker.producer_ids import ProducerIds
from ottla.server.broker.publisher import MetadataPublisher
from ottla.server.broker.telemetry import Telemetry
from ottla.server.controller.controller_node import ControllerNode
from ottla.server.http.endpoint import HttpEndpoint
from ottla.server.logging.limits import report_suppressed
from ottla.server.node.dynamic_settings import cordoned_directories
from ottla.server.node.identity import identify
from ottla.server.node.lifecycle import BrokerLifecycle
from ottla.server.node.listeners import NodeListeners
from ottla.server.node.plugins import load_policies
from ottla.server.node.reporters import Reporters, reporters_refusal
from ottla.server.node.start_log import log_listening, log_recovered, log_starting
from ottla.server.node.startup import Banner
from ottla.server.requests.decompression import Decompression
from ottla.server.requests.dispatch import Dispatcher
from ottla.server.requests.request_log import RequestLog, requests_are_logged
from ottla.server.system.timers import LoopTimer, next_aligned_tick
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.log_set.log_set import LogSet

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.network.server import Listener
    from ottla.purgatory.pending import Pending
    from ottla.server.metrics.requests import RequestMetrics
    from ottla.server.system.environment import Environment
    from ottla.storage.directories.loader import FoundLog
    from ottla.types import Uuid

log = logging.getLogger("ottla.node")
CONTROLLER_TICK_MS = 500
START_LIMIT_S = 60.0
CONTROLLED_SHUTDOWN_LIMIT_S = 5.0


class Node:
    """A combined broker and controller on the running event loop; `start`, then `stop`."""

    def __init__(
        self, config: BrokerConfig, environment: Environment, *, may_format: bool = False
    ) -> None:
        """Take the configuration; may_format lets `start` format an empty data directory."""
        self._environment = environment
        self.config = config
        self._may_format = may_format
        self.failure: Exception | None = None
        self.halted = asyncio.Event()
        self.clock = environment.clock
        self._log_dirs: list[LogDirectory] = []
        self._plugins = ExitStack()
        self._requests = _request_metrics(config)
        self._are_requests_logged = False
        self.http = HttpEndpoint(config.own, environment, self._requests)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """By listener: the host that is advertised and the port that was bound."""
        return self._listeners.addresses

    @property
    def bootstrap(self) -> str:
        """The address that clients on this machine connect to, as it is advertised."""
        name = self.config.broker_endpoints[0].listener
        host, port = self.addresses[name]
        return f"{host}:{port}"

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._identity.cluster_id

    @property
    def banner(self) -> Banner:
        """What a person is shown at start."""
        topics = [name for name in self.broker.image.topics.by_name if name not in INTERNAL_TOPICS]
        return Banner(
            node_id=self.config.node_id,
            cluster_id=self.cluster_id,
            bootstrap=self.bootstrap,
            data_directory=", ".join(self.config.data_directories),
            is_new=self._identity.is_new,
            topic_count=len(topics),
            metrics_url=self.http.url,
        )

    @property
    def connection_count(self) -> int:
        """Connections that are open now."""
        return self._listeners.quota.count

    async def start(self) -> None:
        """Open sockets, disk and roles; return when requests are served.

        Raises PortTaken, KafkaError for a directory in use, OSError for the disk.
        """
        begin_ms = self.clock.monotonic_ms()
        log_starting(self.config)
        loop = asyncio.get_running_loop()
        self._listeners = NodeListeners(loop, self.config, self._environment)
        self._timer = LoopTimer(loop, self.clock)
        start_workers = self._environment.start_workers
        self._workers = start_workers(loop)
        self._receiving = start_workers(loop, 1)  # a receiver of metrics may wait for a network
        self._decompression = start_workers(loop)  # busy for up to a second: not the disk's pool
        try:
            self._policies = load_policies(self.config)
            self._plugins.callback(self._policies.close)
            self._reporters = Reporters(self.config)
            self._plugins.callback(self._reporters.close)
            self._listeners.bind()
            self.http.bind()
            self._lock()
            await self._open()
        except BaseException:
            self._abandon()
            raise
        self._listeners.start()
        log_listening(self._listeners.addresses, self.http.url)
        elapsed_ms = self.clock.monotonic_ms() - begin_ms
        log.info("started in %d ms", elapsed_ms, extra={"event": "node.started"})
        self.http.running(self.broker, self.controller, self._listeners.open, loop)
        self._sweep_connections(self.clock.monotonic_ms())

    def _sweep_connections(self, now_ms: int) -> None:
        """Close silent and trickling connections, now and every few seconds from now on."""
        max_idle_ms = self.config.connections_max_idle_ms
        self._listeners.sweep(now_ms, max_idle_ms)
        report_suppressed()
        if self._are_requests_logged != requests_are_logged():
            self._listeners.serve(self._prepare)
        next_ms = next_aligned_tick(now_ms, sweep_interval_ms(max_idle_ms))
        self._timer.add(next_ms, self._sweep_connections)

    def _lock(self) -> None:
        """Take the directories: nothing is read or written before they are ours."""
        for path in self.config.data_directories:
            log_dir = LogDirectory(path, self._environment.open_directory(path))
            log_dir.lock()
            self._log_dirs.append(log_dir)

    async def _open(self) -> None:
        self._identity = identify(
            self.config, self._log_dirs, self._environment, may_format=self._may_format
        )
        self.controller = self._make_controller()
        is_ready = self.controller.start(self.clock.now_ms())
        self._tick_controller(0)
        # only the committed image says which logs are ours: an older one would set them aside
        await self._completed(is_ready)
        self.controller.add_listener(MetadataLog(self.config.node_id).metadata_changed)
        self._lifecycle = BrokerLifecycle(
            self.config,
            self.controller,
            incarnation_id=self._environment.new_uuid(),
            clock=self.clock,
            timer=self._timer,
        )
        metadata = BrokerMetadata(self.config, self.controller.image)
        replicas = ReplicaSet(self.config.node_id, self._open_logs(metadata))
        self.broker = self._make_broker(metadata, replicas)
        self._maintenance = self._make_maintenance()
        await self._join_cluster()
        self._maintenance.start()
        self._listeners.serve(self._prepare)

    async def _join_cluster(self) -> None:
        """Register, take over the metadata, and be unfenced."""
        self._cordon(self.config)
        await self._completed(
            self._lifecycle.register(
                self._listeners.advertised,
                features=self.controller.supported_features,
                directory_ids=self._identity.directory_ids,
                previous_broker_epoch=self.broker.logs.previous_broker_epoch,
            )
        )
        settings = self.broker.metadata.settings
        settings.on_change(self._reconfigured)
        settings.refuse_when(reporters_refusal)
        self.controller.validate_broker_changes_with(self.broker.refusal)
        self.controller.add_listener(MetadataPublisher(self.broker).metadata_changed)
        await self._completed(self._lifecycle.start_heartbeats())

    def _reconfigured(self, config: BrokerConfig) -> None:
        """Act on settings that were changed while the node runs."""
        self._listeners.apply(config)
        self._cordon(config)
        self._reporters.apply(config, self.broker.telemetry)

    def _cordon(self, config: BrokerConfig) -> None:
        paths = cordoned_directories(config)
        found = [log_dir.directory_id for log_dir in self._log_dirs if log_dir.path in paths]
        self._lifecycle.cordon([one for one in found if one is not None])

    def _make_controller(self) -> ControllerNode:
        return ControllerNode(
            node_id=self.config.node_id,
            cluster_id=self._identity.cluster_id,
            directory_id=self._identity.metadata_directory_id,
            directory=self._log_dir_of(self.config.metadata_directory).directory,
            clock=self.clock,
            rng=self._environment.rng,
            config=self.config,
            run_in_worker=self._workers.run,
            controller_listeners=self._controller_addresses(),
            policies=self._policies,
            on_failure=self._halt,
        )

    def _tick_controller(self, _now_ms: int) -> None:
        now_ms = self.clock.monotonic_ms()
        deadline_ms = None
        try:
            deadline_ms = self.controller.tick(now_ms)
        finally:  # a fault of ours must not end all ticks
            next_ms = now_ms + CONTROLLER_TICK_MS if deadline_ms is None else deadline_ms
            self._timer.add(max(next_ms, now_ms + 1), self._tick_controller)

    def _open_logs(self, metadata: BrokerMetadata) -> LogSet:
        """Load the logs; those whose topic the cluster does not know any more are set aside."""
        topics = metadata.image.topics

        def is_stray(log: FoundLog) -> bool:
            self.http.opened(log)
            return log.topic_id not in topics.by_id

        self.http.recovering(self._log_dirs)
        begin_ms = self.clock.monotonic_ms()
        logs = LogSet.open(
            self._log_dirs,
            config_for=metadata.log_config,
            now_ms=self.clock.now_ms(),
            rng=self._environment.rng,
            is_stray=is_stray,
        )
        self.http.recovered()
        log_recovered(self._log_dirs, logs, self.clock.monotonic_ms() - begin_ms)
        logs.cordoned = cordoned_directories(self.config)
        logs.producers.most = self.config.own.producer_states_max
        return logs

    def _make_broker(self, metadata: BrokerMetadata, replicas: ReplicaSet) -> Broker:
        config, environment = self.config, self._environment
        return Broker(
            metadata,
            cluster_id=self._identity.cluster_id,
            clock=self.clock,
            rng=environment.rng,
            timer=self._timer,
            controller=self.controller,
            replicas=replicas,
            groups=self._make_groups(metadata, replicas),
            producer_ids=ProducerIds(
                config.node_id,
                lambda: self._lifecycle.broker_epoch,
                self.controller.allocate_producer_ids,
            ),
            telemetry=Telemetry(
                config.telemetry_max_bytes, self._receiving.run, self._reporters.receivers
            ),
            decompression=Decompression(
                config.own, self._decompression.run, environment.stopwatch.cpu_s
            ),
            run_in_worker=self._workers.run,
        )

    def _make_groups(self, metadata: BrokerMetadata, replicas: ReplicaSet) -> GroupCoordinator:
        return GroupCoordinator(
            group_coordinator_config(self.config),
            log=TopicLog(OFFSETS_TOPIC, replicas, self.clock),
            timer=self._timer,
            clock=self.clock,
            topics=metadata,
            new_uuid=lambda: _java_text(self._environment.new_uuid()),
            on_fault=_log_fault,
            offsets_partitions=metadata.offsets_partitions,
        )

    def _make_maintenance(self) -> Maintenance:
        return Maintenance(
            self.broker.replicas,
            self.config,
            clock=self.clock,
            timer=self._timer,
            workers=self._workers,
            on_failure=self._halt,
        )

    def _controller_addresses(self) -> dict[str, ListenerAddress]:
        names = [one.listener for one in self.config.controller_endpoints]
        return {name: ListenerAddress(*self.addresses[name], 0) for name in names}

    def _log_dir_of(self, path: str) -> LogDirectory:
        return next(log_dir for log_dir in self._log_dirs if log_dir.path == path)

    async def _completed(self, pending: Pending[Any]) -> None:
        """Wait until it is complete; raises its error, that of a node that halts, or a time-out."""
        done = asyncio.Event()
        pending.on_done(lambda _: done.set())
        waits = [asyncio.ensure_future(event.wait()) for event in (done, self.halted)]
        await asyncio.wait(waits, timeout=START_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not pending.done:
            raise self.failure or KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the controller does not answer"
            )
        _ = pending.value

    def _halt(self, error: Exception) -> None:
        """Stop serving: the metadata's or the last disk failed, nothing may be promised now."""
        text = "halting: %s; the node serves nothing until the cause is removed and it is restarted"
        log.critical(text, error, extra={"event": "node.halted"})
        self.failure = error
        self.http.failed(error)
        self._listeners.stop_accepting()
        self.halted.set()

    def _prepare(self, listener: Listener) -> None:
        """Give a listener who answers on it."""
        controllers = {one.listener for one in self.config.controller_endpoints}
        kind = "controller" if listener.name in controllers else "broker"
        if kind == "broker":
            listener.pace = self.broker.quotas.connections
        elapsed_s = self._environment.stopwatch.elapsed_s
        times = None if self._requests is None else self._requests.times
        dispatcher = Dispatcher(self.broker, kind, elapsed_s, times)
        self._are_requests_logged = requests_are_logged()
        listener.serve(RequestLog(dispatcher, kind) if self._are_requests_logged else dispatcher)

    def _abandon(self) -> None:
        self.http.stop()
        self._listeners.close()
        for log_dir in self._log_dirs:
            log_dir.release()
        self._timer.close()
        self._end_threads()
        self._plugins.close()

    async def stop(self) -> None:
        """Stop serving, flush and close the logs, leave the clean marker."""
        begin_ms = self.clock.monotonic_ms()
        count = self.connection_count
        log.info("stopping: closing %d connections", count, extra={"event": "node.stopping"})
        self.http.stopping()
        self._listeners.close()
        self.broker.decompression.close()
        self._maintenance.stop()
        if self.failure is None:
            await self._controlled_shutdown()
        self.broker.delayed_fetches.complete_all()
        self.broker.groups.close()
        self._lifecycle.stop()
        self._timer.close()
        self._end_threads()
        await asyncio.sleep(0)  # lets the workers' last answers arrive
        self.controller.stop()
        self._plugins.close()
        extra = {"event": "node.stopping"}
        log.info("stopping: flushing and closing %d logs", len(self.broker.logs), extra=extra)
        self.broker.logs.shutdown(self._lifecycle.broker_epoch)
        self.http.stop()
        elapsed_ms = self.clock.monotonic_ms() - begin_ms
        log.info("stopped in %d ms", elapsed_ms, extra={"event": "node.stopped"})

    def _end_threads(self) -> None:
        """Wait for what is under way; nothing is done for what waits behind it."""
        for workers in (self._workers, self._receiving, self._decompression):
            workers.close()

    async def _controlled_shutdown(self) -> None:
        """Leave the cluster in order; a broker that cannot is fenced when its session ends."""
        log.info("stopping: controlled shutdown", extra={"event": "node.stopping"})
        try:
            await asyncio.wait_for(
                self._completed(self._lifecycle.shut_down()), CONTROLLED_SHUTDOWN_LIMIT_S
            )
        except (KafkaError, OSError) as error:
            log.warning(
                "controlled shutdown failed: %s; partitions stay without a leader for "
                "broker.session.timeout.ms unless this node starts again",
                error,
                extra={"event": "node.controlled_shutdown"},
            )

    def kill(self) -> None:
        """End as a killed process does: no flush, no checkpoint, no marker; the lock is freed."""
        self.http.stop()
        self._listeners.close()
        self.broker.decompression.close()
        self._maintenance.stop()
        self._lifecycle.stop()
        self._timer.close()
        self._end_threads()
        for log_dir in self._log_dirs:
            log_dir.release()


def _request_metrics(config: BrokerConfig) -> RequestMetrics | None:
    """Return what times and counts requests; None where nothing is to be scraped."""
    if config.own.address is None:
        return None
    from ottla.server.metrics.requests import RequestMetrics

    return RequestMetrics()


def _java_text(value: Uuid) -> str:
    """Write an id as java.util.UUID does: 8-4-4-4-12 hexadecimal digits."""
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _log_fault(error: Exception) -> None:
    text = "coordinator fault: a group's request failed; report this traceback as a bug of Ottla"
    log.error(text, exc_info=error, extra={"event": "coordinator.fault"})
