"""One node: a broker, a controller or both, on the running event loop.

The constructor builds all parts from the bottom up, each complete: resources, controller, logs,
broker, listeners. `start` only starts them. `NodeParts` starts what needs no wait, passes changes
on and closes all, from the top down.

Kafka: kafka.server.KafkaRaftServer, BrokerServer.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import REGISTERED_FEATURES
from ottla.metadata.loader import MetadataLoader
from ottla.network.limits import sweep_interval_ms
from ottla.network.node_channel import NodeChannel
from ottla.purgatory.expiries import Expiries
from ottla.purgatory.purgatory import Purgatory
from ottla.quota.quotas import Quotas
from ottla.raft.wire.requests import FetchLimits
from ottla.replication.fetch_session import FetchSessionCache
from ottla.replication.replica_set import RackAwareReplicaSelector, ReplicaSet
from ottla.server.broker.broker import Broker
from ottla.server.broker.coordinator_parts import CoordinatorParts, make_coordinators
from ottla.server.broker.directory_moves import DirectoryMoves
from ottla.server.broker.directory_returns import DirectoryReturns, ReturnSteps
from ottla.server.broker.maintenance import Maintenance
from ottla.server.broker.metadata import BrokerMetadata, MetadataLog
from ottla.server.broker.publisher import MetadataPublisher
from ottla.server.broker.replication import Replication
from ottla.server.broker.telemetry import Telemetry
from ottla.server.broker.topic_auto_creation import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    StreamsTopicCreation,
    TopicAutoCreation,
)
from ottla.server.broker.transaction_markers import MarkerWriter
from ottla.server.broker.transaction_partitions import ProducerIdManager, TransactionPartitions
from ottla.server.controller.active_controller import ActiveController
from ottla.server.controller.controller_node import ControllerNode
from ottla.server.controller.quorum_view import QuorumAccess, QuorumChannel, QuorumRequests
from ottla.server.controller.schedule import FailureDetection
from ottla.server.http.endpoint import HttpEndpoint
from ottla.server.logging.lines import report_suppressed
from ottla.server.node.dynamic_settings import DynamicSettings, cordoned_directories
from ottla.server.node.lifecycle import (
    REGISTRATION_TIMEOUT_MS,
    BrokerLifecycle,
    close_logs,
    controlled_shutdown,
    let_others_leave,
    registration_manager,
)
from ottla.server.node.listeners import ListenerRole, NodeListeners
from ottla.server.node.parts import NodeParts, NodeWaits
from ottla.server.node.plugins import authorizer_of
from ottla.server.node.resources import NodeResources
from ottla.server.node.security import NodeSecurity
from ottla.server.node.settings import security_refusal
from ottla.server.node.startup import (
    Banner,
    LoadReport,
    log_listening,
    log_recovered,
    log_starting,
)
from ottla.server.requests.decompression import Decompression
from ottla.server.requests.dispatch import Dispatcher, RequestLog, requests_are_logged
from ottla.server.requests.page_cache import reporting
from ottla.server.system.timers import next_aligned_tick
from ottla.storage.log_set.checkpoint_queue import write_all
from ottla.storage.log_set.jobs import run_all
from ottla.storage.log_set.log_set import LogSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.config.broker import BrokerConfig
    from ottla.purgatory.pending import Pending
    from ottla.replication.delayed_fetch import DelayedFetch
    from ottla.server.remote.log_manager import RemoteLogManager
    from ottla.server.system.environment import Environment
    from ottla.storage.directories.log_dir import LogDirectory
    from ottla.types import Uuid

TIER_START_MS = 5000
"""How long the start waits for remote storage, to refuse wrong settings of it."""
log = logging.getLogger("ottla.node")
CONTROLLER_TICK_MS = 500
RESIGNATION_LIMIT_MS = 1000
_CONTROLLER = "the controller"


class Node:
    """Complete once constructed, on its event loop; `start`, then `stop`."""

    def __init__(
        self, config: BrokerConfig, environment: Environment, *, may_format: bool = False
    ) -> None:
        """Take ports and directories, load the metadata log, and build all parts.

        may_format lets an empty data directory be formatted. Raises PortTaken, PluginError,
        KafkaError for a directory in use, CorruptMessage, OSError for the disk.
        """
        log_starting(config)
        self.config = config
        self.clock = environment.clock
        self._created_ms = self.clock.monotonic_ms()
        self._are_requests_logged = self._is_left = False
        self.failure: Exception | None = None
        self.halted = asyncio.Event()
        self._resources = NodeResources(config, environment, may_format=may_format)
        self.collections = self._resources.collections
        self._waits = NodeWaits(self._resources.loop)
        self._parts = NodeParts()
        self._connect_tier: Callable[[], Pending[None]] | None = None
        try:
            resources, loader = self._resources, MetadataLoader()
            self._metadata = BrokerMetadata(
                DynamicSettings(self.config, (resources.reporters.refusal, security_refusal)),
                loader.image,
            )
            self._quotas = Quotas(self.config)
            self._security = NodeSecurity(self._metadata, resources)
            self._build_controller(loader)
            replicas = self._build_replicas()
            self.broker = self._make_broker(replicas)
            self._add_broker()
            self.remote_logs: RemoteLogManager | None = None
            if self.config.remote_log_storage_system_enable and self.config.is_broker:
                self._add_tier(replicas)
            self._build_front(replicas)
        except BaseException:
            self._resources.close()
            raise

    def _build_controller(self, loader: MetadataLoader) -> None:
        """Build the controller, and what the broker asks the active one for."""
        config, resources, parts = self.config, self._resources, self._parts
        self._quorum_channel = self._make_quorum_channel()
        parts.add("the quorum's channel", close=self._quorum_channel.close)
        self.controller = self._make_controller(loader)
        parts.add(_CONTROLLER, close=self.controller.close)
        detection = FailureDetection(
            self.controller,
            node_id=self.config.node_id,
            listener=self.config.inter_broker_endpoint_name,
            is_enabled=self.config.own.broker_failure_detection_enable,
            loop=self._resources.loop,
        )
        self.controller.on_active(detection.became_active)
        self._failure_detection = detection
        parts.add("the failure detection", close=self._failure_detection.close)
        self._forwarding = self._make_channel("forwarding")
        self._heartbeats = self._make_channel(
            "heartbeat", retry_timeout_ms=config.broker_session_timeout_ms // 2
        )
        channel = self._make_channel("registration", retry_timeout_ms=REGISTRATION_TIMEOUT_MS)
        self._registration = registration_manager(config, resources, loader.image, channel)
        parts.add("the channel of heartbeats", close=self._heartbeats.close)
        parts.add("the channel of forwarded requests", close=self._forwarding.close)
        parts.add("the controller's registration", close=self._registration.close)
        resources = self._resources
        self._lifecycle = BrokerLifecycle(
            self.config,
            self._heartbeats,
            loader.image,
            incarnation_id=resources.environment.new_uuid(),
            cordoned=self._cordoned_ids(self.config),
            loop=resources.core_loop,
            on_report_timeout=self._halt,
        )
        parts.add(
            "the lifecycle",
            reconfigure=lambda config: self._lifecycle.cordon(self._cordoned_ids(config)),
            close=self._lifecycle.close,
        )

    def _build_replicas(self) -> ReplicaSet:
        """Build the logs, the partitions and their replication."""
        config, resources, parts = self.config, self._resources, self._parts
        self._logs = LogSet(
            resources.data_dirs,
            config_for=self._metadata.log_config,
            rng=resources.environment.rng,
            cordoned=cordoned_directories(config),
            max_producers=config.own.producer_states_max,
        )
        parts.add(
            "the logs", reconfigure=lambda config: self._logs.cordon(cordoned_directories(config))
        )
        call_soon, yield_now = resources.loop.call_soon, resources.environment.yield_processor
        replicas = ReplicaSet(config.node_id, self._logs, INTERNAL_TOPICS, call_soon, yield_now)
        replicas.has_partition = self._metadata.has_partition
        peers = self._security.brokers()
        self._replication = replication = Replication(
            self._metadata,
            replicas,
            broker_epoch=lambda: self._lifecycle.broker_epoch,
            controller=self._forwarding,
            new_nodes=lambda number: NodeChannel(
                "replication",
                f"broker-{self.config.node_id}-fetcher-{number}",
                **self._resources.channel_parts,
                security=peers,
            ),
            loop=self._resources.core_loop,
            limit=self._quotas.replication.follower,
            run_on_volume=self._resources.workers.disk.run,
        )
        parts.add(
            "the replication",
            start=replication.start,
            reconfigure=replication.reconfigure,
            close=replication.close,
        )
        return replicas

    def _add_broker(self) -> None:
        """Add what applies changes of the metadata, and what requests wait for."""
        resources, parts, broker, quotas = self._resources, self._parts, self.broker, self._quotas
        self._publisher = MetadataPublisher(broker, resources.workers.new_logs.run)
        parts.add(
            "the partitions",
            metadata_changed=self._publisher.metadata_changed,
            close=self._publisher.close,
        )
        parts.add(
            "the quotas", metadata_changed=quotas.metadata_changed, reconfigure=quotas.configure
        )
        parts.add(
            "the clients' metrics",
            metadata_changed=broker.telemetry.metadata_changed,
            reconfigure=lambda config: resources.reporters.apply(
                config, broker.telemetry, resources.workers.trials.run
            ),
        )
        parts.add("share groups", metadata_changed=broker.share.metadata_changed)
        parts.add("the coordinators", close=broker.coordinators.close)
        parts.add("waiting fetches", close=broker.delayed_fetches.complete_all)
        parts.add("moves between directories", close=broker.moves.close)
        parts.add("the decompression", close=broker.decompression.close)
        parts.add("the requests", reconfigure=broker.reconfigure)

    def _add_tier(self, replicas: ReplicaSet) -> None:
        """Add what copies segments to the tier, deletes them there and reads them (KIP-405)."""
        from ottla.server.remote import log_manager
        from ottla.server.remote.metadata_topic import RemoteMetadataTopic
        from ottla.server.remote.reader import RemoteReader
        from ottla.server.remote.remote_state import RemoteStateBuilder

        resources, loop = self._resources, self._resources.core_loop
        tier = resources.open_tier(self.config)
        channel = self.broker.channel
        topic = RemoteMetadataTopic(
            self._metadata,
            replicas,
            self._forwarding,
            channel,
            loop,
            run_on_volume=resources.workers.disk.run,
        )
        manager = self.remote_logs = log_manager.RemoteLogManager(
            topic,
            replicas,
            self.config,
            loop,
            tier,
            new_uuid=resources.environment.new_uuid,
            rng=resources.environment.rng,
            on_failure=self._halt,
        )
        self.broker.remote_logs = manager
        builder = RemoteStateBuilder(
            topic,
            tier,
            channel,
            self._metadata,
            manager.counts,
            run_on_volume=resources.workers.disk.run,
        )
        self.broker.replication.build_remote_state = builder.build
        self._connect_tier = manager.connect
        self._parts.add(
            "remote storage",
            start=manager.start,
            metadata_changed=manager.metadata_changed,
            reconfigure=manager.reconfigure,
            close=manager.close,
        )
        self.broker.remote_reader = reader = RemoteReader(
            manager, self.config, loop, tier.readers.run, manager.counts
        )
        self._parts.add("remote reads", reconfigure=reader.reconfigure, close=reader.close)

    def _build_front(self, replicas: ReplicaSet) -> None:
        """Build the maintenance, the listeners and the HTTP endpoint."""
        config, resources, parts, broker = self.config, self._resources, self._parts, self.broker
        self._maintenance = Maintenance(
            replicas,
            config,
            broker.log_cleaner,
            loop=resources.core_loop,
            run_on_volume=resources.workers.disk.run,
            on_failure=self._halt,
            on_offline=self._directory_failed,
        )
        parts.add(
            "the maintenance",
            start=self._maintenance.start,
            reconfigure=broker.log_cleaner.settings_changed,
            close=self._maintenance.close,
        )
        steps = ReturnSteps(
            is_idle=resources.workers.is_idle,
            is_registered=self._lifecycle.is_registered,
            is_stray=self._metadata.is_stray,
            assigned=self._metadata.directory_of,
            register=self._lifecycle.directory_returned,
            watch=self._maintenance.returned,
            host=self._publisher.host_again,
        )
        self.returns = DirectoryReturns(
            self._logs,
            config,
            resources.identity.cluster_id,
            steps,
            loop=resources.core_loop,
            run_on_volume=resources.workers.disk.run,
        )
        parts.add("offline directories", close=self.returns.close)
        self._listeners = NodeListeners(
            resources.loop,
            config,
            resources.environment,
            resources.ports,
            self._role_of,
            run_in_worker=resources.workers.receivers.run,
        )
        parts.add("the listeners", reconfigure=self._listeners.apply, close=self._listeners.close)
        self._listeners.account_in(self.broker.ledger)
        self.http = HttpEndpoint(
            resources.http_port,
            broker,
            self.controller,
            self._listeners.open,
            loop=resources.loop,
            stopwatch=resources.environment.stopwatch,
            turns=resources.turns,
        )

    def _make_quorum_channel(self) -> QuorumChannel:
        config, resources = self.config, self._resources
        settings = QuorumAccess(
            node_id=config.node_id,
            cluster_id=resources.identity.cluster_id,
            listener=next(iter(config.controller_listener_names or ()), ""),
            bootstrap=config.bootstrap_controllers,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            limits=FetchLimits(
                config.controller_quorum_fetch_max_bytes,
                config.controller_quorum_fetch_snapshot_max_bytes,
            ),
        )
        security = self._security.controllers()
        return QuorumChannel(settings, **resources.channel_parts, security=security)

    def _make_controller(self, loader: MetadataLoader) -> ControllerNode:
        resources = self._resources
        return ControllerNode(
            node_id=self.config.node_id,
            cluster_id=resources.identity.cluster_id,
            directory_id=resources.identity.metadata_directory_id,
            directory=resources.metadata_log_dir.directory,
            loader=loader,
            loop=resources.core_loop,
            rng=resources.environment.rng,
            config=self.config,
            run_in_worker=resources.workers.quorum.run,
            send=self._quorum_channel.send,
            mutation_quota=self._quotas.mutations,
            broker_refusal=self._metadata.refusal,
            controller_listeners=resources.controller_addresses or None,
            policies=resources.policies,
            on_failure=self._halt,
        )

    def _make_channel(self, purpose: str, **timeouts: Any) -> ActiveController:
        return ActiveController(
            purpose,
            self.controller,
            self.config,
            **self._resources.channel_parts,
            security=self._security.controllers(),
            **timeouts,
        )

    def _make_broker(self, replicas: ReplicaSet) -> Broker:
        config, resources = self.config, self._resources
        workers, environment = resources.workers, resources.environment
        cluster_id = resources.identity.cluster_id
        producer_ids = ProducerIdManager(
            config.node_id, lambda: self._lifecycle.broker_epoch, self._forwarding
        )
        coordinators = self._make_coordinators(replicas, producer_ids)
        expiries = Expiries(resources.timer)
        markers = self._make_markers(replicas, coordinators, expiries)
        transaction_partitions = TransactionPartitions(
            coordinators.transactions, self._metadata.has_partition
        )
        coordinators.channel.serve_own(markers, transaction_partitions)
        delayed_fetches: Purgatory[DelayedFetch] = Purgatory("Fetch", resources.timer)
        replicas.on_high_watermark(delayed_fetches.check_and_complete, delayed_fetches.watchers)
        replicas.on_log_end(delayed_fetches.check_and_complete)
        return Broker(
            metadata=self._metadata,
            cluster_id=cluster_id,
            clock=self.clock,
            rng=environment.rng,
            timer=resources.timer,
            worker=resources.worker,
            run_on_volume=reporting(workers.disk.run, replicas.volume_failed),
            run_trial=workers.trials.run,
            authorizer=authorizer_of(config, self.controller.add_listener),
            controller=self._forwarding,
            own_controller=self.controller.apis,
            quorum=self.controller.quorum,
            quorum_requests=QuorumRequests(self.controller.driver, cluster_id=cluster_id),
            failure_detection=self._failure_detection,
            replicas=replicas,
            replication=self._replication,
            moves=self._make_moves(replicas, delayed_fetches),
            log_cleaner=resources.log_cleaner(self._logs, self._metadata),
            delayed_fetches=delayed_fetches,
            fetch_sessions=FetchSessionCache(
                config.max_incremental_fetch_session_cache_slots, environment.rng
            ),
            replica_selector=(
                RackAwareReplicaSelector(self._metadata.image.cluster)
                if config.replica_selector_class
                else None
            ),
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            share=coordinators.share,
            coordinators=coordinators.registry,
            verification=coordinators.verification,
            channel=coordinators.channel,
            markers=markers,
            transaction_partitions=transaction_partitions,
            expiries=expiries,
            producer_ids=producer_ids,
            topic_auto_creation=TopicAutoCreation(self._metadata, self._forwarding),
            streams_topic_creation=StreamsTopicCreation(
                self._metadata, self._forwarding, self.clock
            ),
            telemetry=Telemetry(
                config.telemetry_max_bytes, workers.receivers.run, resources.reporters.receivers
            ),
            quotas=self._quotas,
            decompression=Decompression(
                config.own, workers.decompression.run, environment.stopwatch.cpu_s
            ),
        )

    def _make_markers(
        self, replicas: ReplicaSet, coordinators: CoordinatorParts, expiries: Expiries
    ) -> MarkerWriter:
        return MarkerWriter(
            replicas,
            self._resources.core_loop,
            {OFFSETS_TOPIC: coordinators.groups},
            expiries,
            timeout_ms=self.config.request_timeout_ms,
        )

    def _make_moves(
        self, replicas: ReplicaSet, delayed_fetches: Purgatory[DelayedFetch]
    ) -> DirectoryMoves:
        resources = self._resources
        return DirectoryMoves(
            self._metadata,
            replicas,
            self._replication.directories,
            quota=self._quotas.replication.directories,
            run_on_volume=resources.workers.moves.run,
            loop=resources.core_loop,
            on_exchanged=delayed_fetches.complete_watchers,
        )

    def _make_coordinators(
        self, replicas: ReplicaSet, producer_ids: ProducerIdManager
    ) -> CoordinatorParts:
        config, resources = self.config, self._resources
        nodes = NodeChannel(
            "coordinators",
            f"broker-{config.node_id}-coordinators",
            **resources.channel_parts,
            security=self._security.brokers(),
        )
        coordinators = make_coordinators(
            self._metadata,
            replicas,
            nodes,
            producer_ids,
            self._forwarding,
            loop=resources.core_loop,
            new_uuid=resources.environment.new_uuid,
        )
        self._parts.add("the channel to brokers", close=coordinators.channel.close)
        return coordinators

    def _role_of(self, listener: str) -> ListenerRole:
        """Return who answers on a listener: the broker's APIs or the controller's."""
        is_controller = listener in self._resources.controller_addresses
        elapsed_s = self._resources.environment.stopwatch.elapsed_s
        times = getattr(self._resources.http_port.requests, "times", None)
        kind, pace = ("controller", None) if is_controller else ("broker", self._quotas.connections)
        dispatcher = Dispatcher(self.broker, kind, elapsed_s, times)
        self._are_requests_logged = requests_are_logged()
        handler = RequestLog(dispatcher, kind) if self._are_requests_logged else dispatcher
        return ListenerRole(handler, pace, self._security.of(listener))

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """By listener: the advertised host and the bound port."""
        return self._resources.ports.addresses

    @property
    def bootstrap(self) -> str:
        """The address that clients on this machine connect to, as it is advertised."""
        host, port = self.addresses[self._bootstrap_listener]
        return f"{host}:{port}"

    @property
    def _bootstrap_listener(self) -> str:
        return (self.config.broker_endpoints or self.config.controller_endpoints)[0].listener

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._resources.identity.cluster_id

    @property
    def banner(self) -> Banner:
        """The text that a start prints."""
        names = self._metadata.image.topics.by_name
        return Banner(
            node_id=self.config.node_id,
            cluster_id=self.cluster_id,
            bootstrap=self.bootstrap,
            data_directory=", ".join(self.config.data_directories),
            is_new=self._resources.identity.is_new,
            topic_count=sum(name not in INTERNAL_TOPICS for name in names),
            metrics_url=self.http.url,
            is_broker="broker" in self.config.process_roles,
            is_plain=self.config.security_protocols[self._bootstrap_listener]
            is SecurityProtocol.PLAINTEXT,
        )

    @property
    def connection_count(self) -> int:
        """Connections that are open now."""
        return self._listeners.connection_count

    # Start

    async def start(self) -> None:
        """Start the parts; return when requests are served.

        Raises KafkaError, TlsError, OSError for the disk; the resources are released then.
        """
        try:
            self.http.start()
            self._listeners.start(self._resources.early_listeners(self.config))
            is_ready = self.controller.start()
            self._tick_controller(0)
            # wait for the metadata; raises KafkaError that says why there is none. As
            # in Kafka a controller waits for the others without a limit, a broker
            # alone until its registration is due
            limit_ms = self.config.server_max_startup_time_ms
            if not self.config.is_controller:
                limit_ms = min(limit_ms, self.config.initial_broker_registration_timeout_ms)
            try:
                await self._waits.completed(is_ready, limit_ms, reason=self._why_no_leader)
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                code = ErrorCode.REQUEST_TIMED_OUT
                if self._quorum_channel.foreign_controllers:
                    code = ErrorCode.INCONSISTENT_CLUSTER_ID
                raise KafkaError(code, self._why_no_leader()) from error
            self.controller.add_listener(MetadataLog(self.config.node_id).metadata_changed)
            if self.config.is_controller:
                self.controller.add_listener(self._registration.metadata_changed)
            if self.config.is_broker:
                await self._register()
                # the registration's image is newer than all changes that this broker has applied
                await self._load_logs()
                if self._connect_tier is not None:
                    await self._wait_for_tier(self._connect_tier())
                await self._join_cluster()
        except BaseException:
            self._parts.close()
            self._resources.close()
            raise
        self._parts.start()
        self._listeners.start(self.addresses)
        log_listening(self.addresses, self.http.url)
        elapsed_ms = self.clock.monotonic_ms() - self._created_ms
        log.info("started in %d ms", elapsed_ms, extra={"event": "node.started"})
        self.http.running()
        self._sweep_connections(self.clock.monotonic_ms())

    async def _wait_for_tier(self, connected: Pending[None]) -> None:
        """Wait a moment: wrong settings refuse the start, a store that is away does not."""
        try:
            await self._waits.completed(connected, TIER_START_MS)
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            connected.complete(None)  # wrong settings halt the node from now on

    def _why_no_leader(self) -> str:
        return self._quorum_channel.why_no_leader(self.controller.quorum.voters)

    async def _register(self) -> None:
        """Register this broker; return when its own image has the registration."""
        identity = self._resources.identity
        self._logs.open()
        self.controller.add_listener(lambda _delta, _image: self._lifecycle.image_changed())
        await self._waits.completed(
            self._lifecycle.register(
                self._resources.ports.advertised,
                cluster_id=identity.cluster_id,
                features=REGISTERED_FEATURES,
                directory_ids=[
                    directory.directory_id
                    for directory in self._logs.online_directories
                    if directory.directory_id is not None
                ],
                previous_broker_epoch=self._logs.previous_broker_epoch,
            ),
            self.config.server_max_startup_time_ms,
        )

    async def _load_logs(self) -> None:
        """Load the logs in workers; logs of partitions that do not exist are set aside.

        Recovery may take minutes, in which the quorum needs this node's responses.
        """
        topics, run_on_volume = self._metadata.image.topics, self._resources.workers.disk.run
        log_dirs, begin_ms = self._resources.data_dirs, self.clock.monotonic_ms()
        loaders = self._logs.loaders(self.clock.now_ms(), self._metadata.is_stray)
        loads = [loader.progress for loader in loaders]
        self.http.recovering(loads)
        report = LoadReport(loads, self.clock, self._resources.timer)
        await self._waits.completed(run_all(loaders, run_on_volume))
        report.stop()
        take = self._logs.take_loaded(loaders, self.clock.now_ms(), self._metadata.directory_of)
        taken = self._resources.worker.run(take)
        await self._waits.completed(taken)
        await self._waits.completed(write_all(taken.value, run_on_volume))
        loaded_logs = [*self._logs, *self._logs.futures]
        for found in [loaded for loaded in loaded_logs if loaded.topic_id not in topics.by_id]:
            self._logs.delete(
                found.topic_partition, now_ms=self.clock.now_ms()
            )  # deleted meanwhile
        self.http.recovered()
        log_recovered(log_dirs, self._logs, self.clock.monotonic_ms() - begin_ms)

    async def _join_cluster(self) -> None:
        """Apply the metadata, and wait until the broker is unfenced."""
        self._metadata.settings.on_change(self._parts.reconfigure)
        self.controller.add_listener(self._parts.metadata_changed)
        self.controller.add_listener(lambda _delta, _image: self._lifecycle.metadata_published())
        for log_dir in self._logs.directories:
            if not log_dir.is_online:
                self._directory_failed(log_dir)
        limit_ms = self.config.server_max_startup_time_ms
        await self._waits.completed(self._lifecycle.start_heartbeats(), limit_ms)

    # While it runs

    def _directory_failed(self, log_dir: LogDirectory) -> None:
        """Let the controller move the leaderships of an offline directory's partitions."""
        if log_dir.directory_id is not None:  # else it was not registered
            self._lifecycle.directory_failed(log_dir.directory_id)
        self.returns.failed(log_dir)

    def _cordoned_ids(self, config: BrokerConfig) -> list[Uuid]:
        paths = cordoned_directories(config)
        found = [dir_.directory_id for dir_ in self._resources.data_dirs if dir_.path in paths]
        return [directory_id for directory_id in found if directory_id is not None]

    def _sweep_connections(self, now_ms: int) -> None:
        """Close idle and slow connections, now and every few seconds from now on."""
        max_idle_ms = self.config.connections_max_idle_ms
        self._listeners.sweep(now_ms, max_idle_ms)
        report_suppressed()
        if self._are_requests_logged != requests_are_logged():
            self._listeners.exchange_handlers()
        next_ms = next_aligned_tick(now_ms, sweep_interval_ms(max_idle_ms))
        self._resources.timer.add(next_ms, self._sweep_connections)

    def _tick_controller(self, _now_ms: int) -> None:
        now_ms = self.clock.monotonic_ms()
        deadline_ms = None
        try:
            deadline_ms = self.controller.tick(now_ms)
        finally:  # an unexpected error must not end all ticks
            next_ms = now_ms + CONTROLLER_TICK_MS if deadline_ms is None else deadline_ms
            self._resources.timer.add(max(next_ms, now_ms + 1), self._tick_controller)

    def _halt(self, error: Exception) -> None:
        """Stop serving: the disk of the metadata, or the last disk, has failed."""
        text = "halting: %s; the node serves no requests; remove the cause and restart it"
        log.critical(text, error, extra={"event": "node.halted"})
        self.failure = error
        self.http.failed(error)
        self._listeners.stop_accepting()
        self.halted.set()
        self._waits.fail(error)

    def clock_moved(self) -> None:
        """Run the timers that are due after the environment's clock was moved ahead."""
        self._resources.timer.catch_up()

    @property
    def is_checking_retention(self) -> bool:
        """Whether a check of retention is under way."""
        return self._maintenance.is_checking

    # Stop

    async def leave(self) -> None:
        """Request a controlled shutdown, once; `stop` calls this first.

        Nodes that stop together all leave first: a controlled shutdown needs a controller.
        """
        if self._is_left:
            return
        self._is_left = True
        count = self.connection_count
        log.info("stopping: closing %d connections", count, extra={"event": "node.stopping"})
        self.http.stopping()
        if self.failure is None and self._lifecycle.broker_epoch >= 0:
            await controlled_shutdown(
                self._waits.completed(self._lifecycle.shut_down()),
                self.controller.quorum,
                election_s=self.config.controller_quorum_election_timeout_ms / 1000,
            )
        if self.failure is None and self.config.is_controller:
            await let_others_leave(self._metadata.image)

    async def stop(self) -> None:
        """Stop serving, flush and close the logs, write the clean shutdown marker."""
        resources, begin_ms = self._resources, self.clock.monotonic_ms()
        await self.leave()
        self._parts.close(down_to=_CONTROLLER)
        if self.failure is None:
            await self._resign()
        resources.timer.close()
        resources.workers.close()
        if self.remote_logs is not None:
            self.remote_logs.end()  # not before: other nodes wait for a controller that does
        await asyncio.sleep(0)  # lets the workers' last answers arrive
        self.controller.stop()
        self._parts.close()
        extra = {"event": "node.stopping"}
        log.info("stopping: flushing and closing %d logs", len(self._logs), extra=extra)
        await close_logs(self._logs, resources.environment, resources.loop)
        self._logs.shutdown(self._lifecycle.broker_epoch)
        resources.close()
        stopped_ms = self.clock.monotonic_ms()
        log.info("stopped in %d ms", stopped_ms - begin_ms, extra={"event": "node.stopped"})

    async def _resign(self) -> None:
        """Let the other controllers elect a leader at once; unreachable ones are not waited for."""
        with suppress(KafkaError):
            await self._waits.completed(self.controller.resign(), RESIGNATION_LIMIT_MS)

    def kill(self) -> None:
        """End as a killed process does: no flush, no checkpoint, no marker; the locks are freed."""
        self.http.stop()
        self._parts.close()
        self._resources.timer.close()
        self._resources.workers.close()
        if self.remote_logs is not None:
            self.remote_logs.end()
        self._resources.release_directories()
