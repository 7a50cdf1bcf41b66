"""The controller of a node: its member of the quorum, and the controller shard.

Sans-IO: time, randomness, disk and workers are arguments.

Kafka: kafka.server.ControllerServer, SharedServer;
org.apache.kafka.raft.KafkaRaftClient.initialize, KRaftControlRecordStateMachine.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.controller.controller import Controller
from ottla.controller.policies import NO_POLICIES
from ottla.controller.replayed_log import ReplayedLog
from ottla.controller.runtime import ControllerRuntime
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.bootstrap import feature_records
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.framing import decode_record
from ottla.metadata.loader import SnapshotPolicy
from ottla.raft.member import MemberSettings
from ottla.raft.node import RaftNode
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.replicated_log import ReplicatedLog
from ottla.raft.requests import ReplicaKey
from ottla.raft.snapshot import decode_snapshot
from ottla.raft.timeouts import NEVER_MS, QuorumTimeouts
from ottla.raft.voter_set import Voter, VoterAddress, VoterHistory, VoterSet, decode_control_message
from ottla.server.controller.apis import ControllerApis
from ottla.server.controller.quorum_view import QuorumView
from ottla.server.controller.schedule import Schedule
from ottla.storage.layout import BOOTSTRAP_CHECKPOINT, METADATA_LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random
    from typing import TypeAlias

    from ottla.clock import Clock
    from ottla.config.broker import BrokerConfig
    from ottla.controller.config_operations import BrokerRefusal
    from ottla.controller.policies import Policies
    from ottla.metadata.broker import ListenerAddress
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.framing import MessageAndVersion
    from ottla.metadata.image import MetadataImage
    from ottla.metadata.loader import MetadataLoader
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.quota.rates import MutationQuota
    from ottla.raft.driver import RaftDriver, RunInWorker, SendRequest
    from ottla.raft.snapshot import SnapshotReader
    from ottla.storage.directory import Directory
    from ottla.types import OffsetAndEpoch, Uuid

    Snapshot: TypeAlias = tuple[OffsetAndEpoch, SnapshotReader]

log = logging.getLogger("ottla.controller")


class ControllerNode:
    """Call `start` once, `tick` when its deadline comes, `stop` at the end."""

    def __init__(  # noqa: PLR0913 - a node is made of all it stands on
        self,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: Uuid,
        directory: Directory,
        loader: MetadataLoader,
        loop: Loop,
        rng: Random,
        config: BrokerConfig,
        run_in_worker: RunInWorker,
        send: SendRequest,
        mutation_quota: MutationQuota,
        broker_refusal: BrokerRefusal | None = None,
        controller_listeners: Mapping[str, ListenerAddress] | None = None,
        policies: Policies = NO_POLICIES,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Open the metadata log and take a place in the quorum.

        directory is the root of the metadata log directory; loader gets what is committed;
        run_in_worker(job, done) calls done(result, error) on the loop; send(node id, endpoints,
        request) reaches the other members of the quorum. broker_refusal is called before settings
        of brokers change; None where the node is no broker. controller_listeners are this
        controller's addresses; None where the node is no controller and only observes the quorum.
        on_failure(error) is called once when the disk has failed or a record cannot be applied: the
        node must then halt.

        CorruptMessage or UnsupportedVersion for files that are damaged or of a newer version,
        KafkaError INCONSISTENT_VOTER_SET for a quorum that this node cannot serve.
        """
        self._clock = clock = loop.clock
        self._loader = loader
        self._log = metadata_log = open_log(directory, config, clock)
        controller = Controller(
            config=config,
            cluster_id=cluster_id,
            rng=rng,
            supported_features=SUPPORTED_FEATURES,
            kraft_version=lambda: raft.kraft_version,
            raise_kraft_version=self._raise_kraft_version,
            policies=policies,
            broker_refusal=broker_refusal,
        )
        replayed = ReplayedLog(controller, loader, _snapshot_policy(config, clock))
        store = QuorumStateStore(directory, METADATA_LOG)
        snapshot = metadata_log.checked_snapshot
        raft = take_part(
            metadata_log,
            store,
            snapshot=snapshot,
            settings=member_settings(
                ReplicaKey(node_id, directory_id), config, controller_listeners
            ),
            static_voters=static_voters(config),
            clock=clock,
            rng=rng,
            path=config.metadata_directory,
        )
        self._runtime = ControllerRuntime(
            replayed,
            raft,
            metadata_log=metadata_log,
            store=store,
            loop=loop,
            config=config,
            run_in_worker=run_in_worker,
            send=send,
            on_deadline=self._due,
            bootstrap=_bootstrap_records(directory),
            on_failure=on_failure,
        )
        self._schedule = Schedule(self._runtime, config, clock)
        self._on_active: Callable[[], None] | None = None
        self._runtime.on_active = self._became_active
        self.quorum = QuorumView(raft, metadata_log, controller_listeners)
        self.apis = ControllerApis(
            self._runtime,
            self.quorum,
            cluster_id=cluster_id,
            clock=clock,
            mutation_quota=mutation_quota,
        )
        self._snapshot_id = snapshot[0] if snapshot is not None and snapshot[0].offset else None
        """Id of the snapshot to start from; None on a new node, whose snapshot is empty."""
        self._is_stopped = False
        self._quorum_timer = _QuorumTimer(self._runtime.driver, clock, loop.timer)

    def _due(self, due_ms: int) -> None:
        self._quorum_timer.due(due_ms)

    @property
    def image(self) -> MetadataImage:
        """The committed metadata; one object, changed in place."""
        return self._loader.image

    def _raise_kraft_version(self, level: int, /, *, validate_only: bool) -> None:
        self._runtime.driver.raise_kraft_version(level, validate_only=validate_only)

    def on_active(self, listener: Callable[[], None]) -> None:
        """Call the listener whenever this controller becomes active."""
        self._on_active = listener

    def _became_active(self) -> None:
        self._schedule.begin(self._clock.monotonic_ms())
        if self._on_active is not None:
            self._on_active()

    def fence_lost_broker(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose process has ended, unless it has another epoch by now.

        Partitions that only an unclean election could serve wait until its session would expire.
        """
        controller, now_ms = self._runtime.controller, self._clock.monotonic_ms()
        self._runtime.write(lambda: controller.fence_lost_broker(broker_id, broker_epoch))
        timeout_ms = controller.cluster.heartbeats.session_timeout_ms
        self._schedule.await_lost_broker(broker_id, now_ms + timeout_ms)

    @property
    def driver(self) -> RaftDriver:
        """This node's member of the quorum."""
        return self._runtime.driver

    @property
    def active(self) -> bool:
        """Whether this controller is the active one."""
        return self._runtime.active

    @property
    def failure(self) -> Exception | None:
        """The error that stopped this controller; None while it works."""
        return self._runtime.failure

    @property
    def commit_latencies_ms(self) -> tuple[int, ...]:
        """Latencies of the latest commits of metadata."""
        return tuple(self._runtime.driver.commit_latencies_ms)

    def add_listener(self, listener: Callable[[MetadataDelta, MetadataImage], None]) -> None:
        """Call listener(delta, image) after every commit that changed something.

        A late listener gets everything at once, as a snapshot's delta.
        """
        self._loader.add_listener(listener)

    def start(self) -> Pending[None]:
        """Take part in the quorum.

        Complete when all committed records are applied: up to the leader's high watermark, or by
        the active controller up to the end of its log.
        """
        if self._snapshot_id is not None:
            self._runtime.snapshot_loaded(self._snapshot_id)
        self._runtime.driver.tick()
        return self._runtime.ready

    def tick(self, now_ms: int) -> int | None:
        """Run the periodic tasks; return the next deadline. Times are monotonic ms."""
        runtime = self._runtime
        if self._is_stopped:
            return None
        runtime.retry()
        self._remove_deleted_segments()
        if not runtime.active:
            return None
        return self._schedule.run(now_ms)

    def _remove_deleted_segments(self) -> None:
        def removed(_none: None, error: Exception | None) -> None:
            if error is not None:
                self._runtime.failed(error)

        removal = self._log.log.take_removal(self._clock.now_ms())
        if removal is not None:
            self._runtime.driver.run_in_worker(removal, removed)

    def resign(self) -> Pending[None]:
        """Resign; operations that are not committed fail with NOT_CONTROLLER.

        Complete when the other voters know, so that they elect another leader at once.
        """
        return self._runtime.driver.stop()

    def close(self) -> None:
        """Stop applying committed records; the log is not changed."""
        self._runtime.close()

    def stop(self) -> None:
        """Resign and close the log."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._runtime.driver.stop()
        self.close()
        try:
            self._log.close(is_to_be_flushed=self._runtime.failure is None)
        except KafkaError as error:  # the broker's logs must still be closed
            text = "metadata log: %s; check the disk before the next start"
            log.error(text, error, extra={"event": "metadata.unflushed"})  # noqa: TRY400 - the text says all


class _QuorumTimer:
    """Ticks the member of the quorum at its next deadline, with one timer.

    Kafka: org.apache.kafka.raft.TimingWheelExpirationService, KafkaRaftClientDriver.
    """

    __slots__ = ("_clock", "_driver", "_next_ms", "_timer")

    def __init__(self, driver: RaftDriver, clock: Clock, timer: TimingWheel) -> None:
        self._driver = driver
        self._clock = clock
        self._timer = timer
        self._next_ms = NEVER_MS

    def due(self, due_ms: int) -> None:
        """Tick the driver at this monotonic time, or at an earlier one that is set already."""
        if due_ms < self._next_ms:
            self._next_ms = max(due_ms, self._clock.monotonic_ms() + 1)
            self._timer.add(self._next_ms, self._tick)

    def _tick(self, now_ms: int) -> None:
        if now_ms >= self._next_ms:
            self._next_ms = NEVER_MS
            self._driver.tick()


def _snapshot_policy(config: BrokerConfig, clock: Clock) -> SnapshotPolicy:
    return SnapshotPolicy(
        max_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        max_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        now_ms=clock.monotonic_ms(),
    )


def _bootstrap_records(directory: Directory) -> Sequence[MessageAndVersion]:
    if not directory.exists(BOOTSTRAP_CHECKPOINT):
        return feature_records()
    content = decode_snapshot(directory.read_file(BOOTSTRAP_CHECKPOINT))
    return [decode_record(value) for value in content.values]


def open_log(directory: Directory, config: BrokerConfig, clock: Clock) -> ReplicatedLog:
    """Recover the metadata log; errors as `ReplicatedLog.open`."""
    return ReplicatedLog.open(
        directory,
        now_ms=clock.now_ms(),
        path=config.metadata_directory,
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
    )


def member_settings(
    key: ReplicaKey, config: BrokerConfig, listeners: Mapping[str, ListenerAddress] | None
) -> MemberSettings:
    """Return a member's own settings; listeners are None where the node is no controller."""
    return MemberSettings(
        key,
        tuple(
            VoterAddress(name, address.host, address.port)
            for name, address in (listeners or {}).items()
        ),
        len(config.bootstrap_controllers),
        QuorumTimeouts(
            election_ms=config.controller_quorum_election_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            fetch_ms=config.controller_quorum_fetch_timeout_ms,
            request_ms=config.controller_quorum_request_timeout_ms,
            retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        ),
        config.controller_quorum_auto_join_enable,
    )


def take_part(
    log: ReplicatedLog,
    store: QuorumStateStore,
    *,
    snapshot: Snapshot | None,
    settings: MemberSettings,
    static_voters: VoterSet,
    clock: Clock,
    rng: Random,
    path: str,
) -> RaftNode:
    """Return the member with the voters of the log, which continues from a snapshot.

    path is the log directory's name in the text of errors. KafkaError INCONSISTENT_VOTER_SET for
    a quorum that this node cannot serve.
    """
    voters, position = VoterHistory(static_voters), 0
    if snapshot is not None:
        position, content = snapshot[0].offset, snapshot[1]
        if content.voters is not None:
            voters.restart(position, content.voters, content.kraft_version)
    for batch in log.read(max(position, log.start_offset)):
        if batch.is_control:
            for record in batch.records():
                voters.apply(record.offset, decode_control_message(record))
    check_voters(voters.latest, settings.key)
    election = store.read_at_start(
        log_end_offset=log.end_offset, epoch_at_end=log.epoch_at_end(), path=path
    )
    if log.end_offset == 0:  # a kill may fall between the first append and the first vote
        store.write(election, kraft_version=1)
    return RaftNode(
        settings,
        log=log,
        voters=voters,
        election=election,
        rng=rng,
        now_ms=clock.monotonic_ms(),
        wall_ms=clock.now_ms,
    )


def check_voters(voters: VoterSet, key: ReplicaKey) -> None:
    """Raise INCONSISTENT_VOTER_SET where only the lost disk of this node could lead the quorum."""
    alone = {voter.voter_id for voter in voters} == {key.node_id}
    if alone and not voters.is_voter(*key):
        raise KafkaError(
            ErrorCode.INCONSISTENT_VOTER_SET,
            f"node {key.node_id} with directory {key.directory_id} is not a voter of "
            f"{voters}: the disk it voted with is not here",
        )


def static_voters(config: BrokerConfig) -> VoterSet:
    """Return the voters of controller.quorum.voters (kraft.version 0)."""
    names = config.controller_listener_names
    return VoterSet(
        Voter(
            voter.node_id,
            endpoints=(VoterAddress(names[0] if names else "", voter.host, voter.port),),
        )
        for voter in config.voters
    )
