"""The controller of a node: its member of the quorum and the shard on top.

Kafka: kafka.server.ControllerServer, SharedServer.

Sans-IO: time, randomness, disk and workers are arguments.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.controller.controller import Controller
from ottla.controller.policies import NO_POLICIES
from ottla.controller.replayed_log import ReplayedLog
from ottla.controller.result import ControllerResult
from ottla.controller.runtime import ControllerRuntime
from ottla.errors import KafkaError
from ottla.metadata.bootstrap import BOOTSTRAP_CHECKPOINT, feature_records
from ottla.metadata.broker import ControllerRegistration, FeatureRange, ListenerAddress
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.framing import decode_record
from ottla.metadata.loader import MetadataLoader
from ottla.metadata.snapshot import SnapshotPolicy
from ottla.raft.log_check import METADATA_LOG
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.snapshot import decode_snapshot
from ottla.server.controller.apis import ControllerApis
from ottla.server.controller.quorum_description import describe_quorum
from ottla.server.controller.quorum_start import static_voters, take_part
from ottla.server.system.timers import next_aligned_tick
from ottla.types import Node, OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.controller.policies import Policies
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.framing import MessageAndVersion
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.apis.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
    )
    from ottla.purgatory.pending import Pending
    from ottla.raft.driver import RunInWorker
    from ottla.raft.node import RaftNode
    from ottla.raft.voter_set import Voter, VoterEndpoint, VoterSet
    from ottla.storage.directory import Directory

log = logging.getLogger("ottla.controller")


class ControllerNode(ControllerApis):
    """Call `start` once, `tick` when its deadline comes, `stop` at the end."""

    def __init__(  # noqa: PLR0913 - a node is made of all it stands on
        self,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: Uuid,
        directory: Directory,
        clock: Clock,
        rng: Random,
        config: BrokerConfig,
        run_in_worker: RunInWorker,
        supported_features: Mapping[str, FeatureRange] = SUPPORTED_FEATURES,
        controller_listeners: Mapping[str, ListenerAddress] | None = None,
        policies: Policies = NO_POLICIES,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Take what the node stands on.

        directory is the root of the metadata log directory; run_in_worker(job, done) calls
        done(result, error) on the loop. controller_listeners are the addresses at which this
        controller serves (it registers itself when they are given). on_failure(error) is called
        once when the disk has failed or a record cannot be applied: the node must then halt.
        """
        super().__init__(clock)
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.supported_features = supported_features
        self._directory = directory
        self._rng = rng
        self._config = config
        self._run_in_worker = run_in_worker
        self._listeners = controller_listeners
        self._policies = policies
        self._on_failure = on_failure
        self._loader = MetadataLoader()
        self._raft: RaftNode | None = None
        self._log: ReplicatedLog | None = None

    # What others look at

    @property
    def image(self) -> MetadataImage:
        """The committed metadata; the same object for ever, changed in place."""
        return self._loader.image

    @property
    def active(self) -> bool:
        """Whether this controller takes operations."""
        return self._runtime is not None and self._runtime.active

    @property
    def failure(self) -> Exception | None:
        """Why nothing works any more, if so."""
        return None if self._runtime is None else self._runtime.failure

    @property
    def leader_id(self) -> int:
        """Who leads the quorum, -1 when that is not known."""
        return -1 if self._raft is None else self._raft.leader_id

    @property
    def leader_epoch(self) -> int:
        """The newest epoch of the quorum."""
        return 0 if self._raft is None else self._raft.epoch

    @property
    def voters(self) -> VoterSet:
        """Who votes; only a running node knows."""
        assert self._raft is not None, "a running node is a member of a quorum"
        return self._raft.voters

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version."""
        return 0 if self._raft is None else self._raft.kraft_version

    @property
    def high_watermark(self) -> int:
        """The committed end of the metadata log, -1 when it is not known."""
        return -1 if self._raft is None else self._raft.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The end of the metadata log."""
        return 0 if self._log is None else self._log.end_offset

    @property
    def quorum_state(self) -> str:
        """This node's state in the quorum as Kafka's metric current-state writes it."""
        return "unattached" if self._raft is None else type(self._raft.role).__name__.lower()

    @property
    def commit_latencies_ms(self) -> tuple[int, ...]:
        """How long the last commits of metadata took."""
        return () if self._runtime is None else tuple(self._runtime.driver.commit_latencies_ms)

    @property
    def voter_count(self) -> int:
        """Voters of the quorum."""
        return 0 if self._raft is None else len(list(self._raft.voters))

    def add_listener(self, listener: Callable[[MetadataDelta, MetadataImage], None]) -> None:
        """Call listener(delta, image) after every commit that changed something.

        A late listener is told everything at once, as a snapshot's delta.
        """
        self._loader.add_listener(listener)

    # Life

    def validate_broker_changes_with(
        self, refusal: Callable[[str, Mapping[str, str]], str | None]
    ) -> None:
        """Ask refusal(broker, settings) before settings of brokers change; a text refuses them."""
        self._controller.configs.validate_brokers_with(refusal)

    def start(self, now_ms: int) -> Pending[None]:
        """Load the log and take part in the quorum; now_ms is wall time.

        Complete when this node leads and everything in its log is committed.

        CorruptMessage or UnsupportedVersion when what lies on the disk cannot be trusted or
        understood, KafkaError INCONSISTENT_VOTER_SET for a quorum this node cannot serve.
        """
        log = ReplicatedLog.open(
            self._directory,
            now_ms=now_ms,
            path=self._config.metadata_directory,
            segment_bytes=self._config.metadata_log_segment_bytes,
            segment_ms=self._config.metadata_log_segment_ms,
        )
        replayed = ReplayedLog(self._new_controller(), self._loader, self._snapshot_policy())
        store = QuorumStateStore(self._directory, METADATA_LOG)
        raft = take_part(
            log,
            replayed,
            store,
            node_id=self.node_id,
            directory_id=self.directory_id,
            static_voters=static_voters(self._config),
            path=self._config.metadata_directory,
        )
        runtime = ControllerRuntime(
            replayed,
            raft,
            metadata_log=log,
            store=store,
            clock=self._clock,
            config=self._config,
            run_in_worker=self._run_in_worker,
            bootstrap=self._bootstrap_records(),
            registration=self._registration(),
            on_failure=self._on_failure,
        )
        self._log, self._raft, self._runtime = log, raft, runtime
        runtime.driver.start(now_ms)
        return runtime.ready

    def _new_controller(self) -> Controller:
        return Controller(
            config=self._config,
            cluster_id=self.cluster_id,
            rng=self._rng,
            supported_features=self.supported_features,
            kraft_version=lambda: self.kraft_version,
            policies=self._policies,
        )

    def _snapshot_policy(self) -> SnapshotPolicy:
        return SnapshotPolicy(
            max_bytes=self._config.metadata_log_max_record_bytes_between_snapshots,
            max_interval_ms=self._config.metadata_log_max_snapshot_interval_ms,
            now_ms=self._clock.monotonic_ms(),
        )

    def _bootstrap_records(self) -> Sequence[MessageAndVersion]:
        if not self._directory.exists(BOOTSTRAP_CHECKPOINT):
            return feature_records()
        content = decode_snapshot(self._directory.read_file(BOOTSTRAP_CHECKPOINT))
        return [decode_record(value) for value in content.values]

    def _registration(self) -> ControllerRegistration | None:
        """Return the addresses and features of this controller, None without listeners."""
        if self._listeners is None:
            return None
        return ControllerRegistration(
            self.node_id,
            Uuid(self._rng.randbytes(16)),
            zk_migration_ready=False,
            listeners=self._listeners,
            features=self.supported_features,
        )

    def tick(self, now_ms: int) -> int | None:
        """Do what time demands; return when to call again. Times are monotonic ms."""
        runtime = self._runtime
        if runtime is None:
            return None
        runtime.driver.flush_again()
        if not runtime.active:
            return None
        if self._log is not None:
            self._log.remove_deleted(self._clock.now_ms())
        cluster = runtime.controller.cluster
        while cluster.heartbeats.stale(cluster.unfenced_ids(), now_ms) and runtime.active:
            if runtime.write(lambda _: runtime.controller.fence_stale_brokers(now_ms)).error:
                break
        deadlines = [cluster.heartbeats.next_expiry_ms(cluster.unfenced_ids())]
        idle_ms = self._config.metadata_max_idle_interval_ms
        if idle_ms > 0 and runtime.active:
            if now_ms >= next_aligned_tick(runtime.last_append_ms, idle_ms):
                runtime.write_no_op()
            deadlines.append(next_aligned_tick(runtime.last_append_ms, idle_ms))
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def stop(self) -> None:
        """Resign and close the log; whatever was not committed fails with NOT_CONTROLLER."""
        runtime, metadata = self._runtime, self._log
        if runtime is None or metadata is None:
            return
        runtime.driver.stop(self._clock.now_ms())
        self._runtime = None
        try:
            metadata.close(is_to_be_flushed=runtime.failure is None)
        except KafkaError as error:  # the brokers' logs are to be closed all the same
            text = "metadata log: %s; check the disk before the next start"
            log.error(text, error, extra={"event": "metadata.unflushed"})  # noqa: TRY400 - the text says all

    # Quorum

    def describe_quorum(self, request: DescribeQuorumRequest) -> Pending[DescribeQuorumResponse]:
        """Describe leader, voters and how far they are."""
        return self._running.write(lambda _: ControllerResult([], self._describe(request)))

    def _describe(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        assert self._raft is not None, "a running node is a member of a quorum"
        return describe_quorum(
            request,
            self._raft,
            log_end_offset=self.log_end_offset,
            now_ms=self._clock.now_ms(),
            port_of=self._bound_port,
        )

    def voter_nodes(self, listener: str) -> list[Node]:
        """Return the controllers with the address of a listener, those without it left out."""
        return [
            Node(voter.voter_id, end.host, self._bound_port(voter, end))
            for voter in self.voters
            for end in voter.endpoints
            if end.listener_name == listener
        ]

    def _bound_port(self, voter: Voter, end: VoterEndpoint) -> int:
        """Return where a voter listens; this node's port 0 means the port that it was given."""
        own = (self._listeners or {}).get(end.listener_name)
        if end.port or own is None or voter.voter_id != self.node_id:
            return end.port
        return own.port

    def write_snapshot(self) -> OffsetAndEpoch:
        """Write a snapshot now, whatever the policy says; return its id."""
        return self._running.snapshots.write()
