"""A broker of the simulation of one partition's replicas: its parts, over a simulated disk.

See `replicas.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.sampled_stat import SampleWindow
from ottla.protocol.apis.list_offsets import ListOffsetsResponse
from ottla.protocol.fetch_values import FetchAnswer, FetchedPartition, FetchValues
from ottla.protocol.offset_timestamps import LATEST_TIMESTAMP
from ottla.purgatory.pending import Pending
from ottla.quota.replication import ReplicationQuota
from ottla.records.builder import encode_batch
from ottla.replication.fetcher import FetcherSettings, ReplicaFetcher
from ottla.replication.isr_updates import IsrUpdates
from ottla.replication.replica_set import ReplicaSet
from ottla.storage.log.config import LogConfig
from ottla.storage.log.partition_log import PartitionLog
from ottla.testing.disk import SimulatedCrash, SimulatedDisk
from ottla.types import FileSlice
from tests.simulation.replica_controller import MIN_ISR, TOPIC_ID, Image

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.partition import PartitionRegistration
    from ottla.protocol.apis.alter_partition import AlterPartitionRequest
    from ottla.protocol.apis.list_offsets import ListOffsetsRequest
    from ottla.replication.isr_updates import BrokerEpochs
    from ottla.replication.leader_state import ReplicationWait
    from ottla.replication.partition import Partition
    from ottla.types import Buffer, TopicPartition, Uuid
    from tests.simulation.replicas import SimulatedReplicas

TOPIC = "orders"
LOG_NAME = "orders-0"
MAX_LAG_MS = 400
HEARTBEAT_MS = 200
REQUEST_TIMEOUT_MS = 600
FETCH_BYTES = 400
NO_LIMIT = ReplicationQuota(SampleWindow(11, 1000))
_Offsets = ListOffsetsResponse.ListOffsetsTopicResponse


class SimulatedLogs:
    """The logs of one broker, as far as `ReplicaSet` needs them."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self.flushes = SimpleNamespace(waits=SimpleNamespace(overdue={}))
        self.broken: dict[TopicPartition, object] = {}
        self.withheld: dict[TopicPartition, object] = {}

    def get_or_create(
        self, partition: TopicPartition, *, topic_id: Uuid, now_ms: int, is_new: bool
    ) -> PartitionLog:
        """Open the log, recovered after a crash."""
        del is_new
        return PartitionLog.open(
            self._broker.disk,
            LOG_NAME,
            config=LogConfig(segment_bytes=900, preallocate_indexes=False),
            now_ms=now_ms,
            topic_partition=partition,
            topic_id=topic_id,
            recovery_point=0,
        )

    def delete(self, _partition: TopicPartition, *, now_ms: int) -> None:
        """Remove the log."""
        del now_ms
        self._broker.disk.remove_tree(LOG_NAME)


class SimulatedBroker:
    """One node: its disk outlives its processes. Knows the metadata that has reached it."""

    def __init__(self, cluster: SimulatedReplicas, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.disk = SimulatedDisk(cluster.rng.randrange(1 << 30))
        self.life = 0
        self.is_alive = False
        self.is_clean = True
        """Whether the process before ended without loss of records."""
        self.broker_epoch = -1
        self.image: Image | None = None
        self.replicas = ReplicaSet(node_id, SimulatedLogs(self))  # type: ignore[arg-type] # in small
        self.fetcher: ReplicaFetcher | None = None
        self.partition: Partition | None = None
        self.last_fetch: tuple[SimulatedBroker, Any] | None = None

    # The process

    def start(self) -> None:
        """Begin with what the disk has."""
        cluster = self.cluster
        self.begin()
        cluster.checks.forget(self.node_id)
        self.broker_epoch = cluster.controller.register(self.node_id, is_clean=self.is_clean)
        self.is_clean = True
        self.see(cluster.controller.image)
        cluster.happen(1, self.guarded, self.life, self.heartbeat)
        cluster.happen(MAX_LAG_MS // 2, self.guarded, self.life, self.check_lag)
        cluster.happen(50, self.guarded, self.life, self.flush)

    def begin(self) -> None:
        """Begin a process that knows nothing of the cluster."""
        cluster = self.cluster
        self.life += 1
        self.is_alive = True
        self.image, self.partition, self.fetcher = None, None, None
        self.replicas = ReplicaSet(self.node_id, SimulatedLogs(self))  # type: ignore[arg-type]
        brokers: BrokerEpochs = self
        updates = IsrUpdates(
            self.node_id,
            max_lag_ms=MAX_LAG_MS,
            brokers=brokers,
            send=self.send_to_controller,
            retry_later=lambda delay_ms, retry: cluster.happen(
                delay_ms, self.guarded, self.life, retry
            ),
            high_watermark_moved=self.replicas.high_watermark_moved,
        )
        self.replicas.environment = updates

    def stop(self, *, power_cut: bool) -> None:
        """End the process, with the power or alone."""
        self.life += 1
        self.is_alive = False
        if power_cut:
            self.is_clean = False
            self.disk.crash()
        else:
            self.disk.kill()

    def guarded(self, life: int, action: Callable[..., None], *arguments: Any) -> None:
        """Do something in this process, if it still runs; a crash of the disk ends it."""
        if life != self.life or not self.is_alive:
            return
        try:
            action(*arguments)
        except SimulatedCrash:
            self.stop(power_cut=True)
            self.cluster.restart_later(self)
        else:
            self.cluster.checks.observe(self)

    def heartbeat(self) -> None:
        """Report to the controller, now and later."""
        cluster, life = self.cluster, self.life
        cluster.happen(HEARTBEAT_MS, self.guarded, life, self.heartbeat)
        epoch = self.broker_epoch

        def arrive() -> None:
            cluster.controller.heartbeat(self.node_id, epoch)
            cluster.publish(self, cluster.controller.image)

        cluster.carry(self.node_id, 0, arrive)

    def check_lag(self) -> None:
        """Let the leader look for followers that lag."""
        self.cluster.happen(MAX_LAG_MS // 2, self.guarded, self.life, self.check_lag)
        self.replicas.check_lag(self.cluster.clock.ms)

    def flush(self) -> None:
        """Make the log durable once in a while."""
        rng = self.cluster.rng
        self.cluster.happen(rng.randrange(50, 3000), self.guarded, self.life, self.flush)
        if self.partition is not None:
            flush(self.partition.log, self.cluster.clock.ms)

    # Metadata

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker runs, as far as this one knows."""
        assert self.image is not None
        known = self.image.brokers.get(broker_id)
        return known is not None and not known.is_fenced and broker_epoch in (-1, known.epoch)

    def is_unfenced(self, broker_id: int) -> bool:
        """Whether a broker runs, as far as this one knows."""
        return self.may_join(broker_id, -1)

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a later incarnation is known here."""
        assert self.image is not None
        known = self.image.brokers.get(broker_id)
        return known is not None and known.epoch > broker_epoch

    def see(self, image: Image) -> None:
        """Apply metadata, as `MetadataPublisher` does: the same again after a reload."""
        if self.image is not None and image.version < self.image.version:
            return
        self.image = image
        registration, now_ms = image.partition, self.cluster.clock.ms
        if self.node_id not in registration.replicas:
            self._drop()
            return
        if self.partition is None:
            self.partition = self.replicas.host(TOPIC, 0, TOPIC_ID, now_ms=now_ms)
            self.partition.reconfigure(MIN_ISR)
        self._assign(self.partition, registration, now_ms)

    def _assign(
        self, partition: Partition, registration: PartitionRegistration, now_ms: int
    ) -> None:
        leader, leader_epoch = registration.leader, registration.leader_epoch
        is_moved = leader_epoch != partition.leader_epoch
        if not partition.assign(
            registration.replicas, registration.isr, registration.partition_epoch
        ):
            return
        if leader == self.node_id:
            self.fetcher = None
            partition.become_leader(self.node_id, leader_epoch, now_ms=now_ms)
            return
        if is_moved:
            self.replicas.resign(partition, leader, leader_epoch)
            self._follow(partition, leader, leader_epoch)

    def _drop(self) -> None:
        if self.partition is not None:
            self.fetcher = None
            self.replicas.drop(TOPIC, 0, now_ms=self.cluster.clock.ms)
            self.partition = None
            self.cluster.checks.forget(self.node_id)
        elif self.disk.exists(LOG_NAME):  # of a life before
            self.disk.remove_tree(LOG_NAME)

    # A follower

    def _follow(self, partition: Partition, leader: int, leader_epoch: int) -> None:
        self.fetcher = None
        if leader < 0:
            return
        self.fetcher = ReplicaFetcher(
            self.node_id,
            leader,
            FetcherSettings(max_bytes=FETCH_BYTES, backoff_ms=30),
            broker_epoch=lambda: self.broker_epoch,
            on_fetched=self.replicas.fetched,
            limit=NO_LIMIT,
            traffic=self.replicas.traffic,
            on_failed=self.replicas.failed,
        )
        self.fetcher.add(partition, leader_epoch)
        self.poll(self.fetcher)

    def poll(self, fetcher: ReplicaFetcher) -> None:
        """Send the fetcher's next request; look again later when there is none."""
        if fetcher is not self.fetcher:
            return
        now_ms = self.cluster.clock.ms
        _truncate(fetcher, now_ms)
        for log, flushed in fetcher.take_unflushed():
            delay_ms = self.cluster.rng.randrange(1, 200)
            self.cluster.happen(
                delay_ms, self.guarded, self.life, self._flush_cut, fetcher, log, flushed
            )
        request = fetcher.poll(now_ms)
        if request is None:
            if fetcher.due_ms is not None:
                delay_ms = max(fetcher.due_ms - now_ms, 1)
                self.cluster.happen(delay_ms, self.guarded, self.life, self.poll, fetcher)
            return

        def done(pending: Pending[Any]) -> None:
            now_ms = self.cluster.clock.ms
            if fetcher is not self.fetcher:
                return
            if pending.error is not None:
                fetcher.failed(now_ms)
            else:
                fetcher.received(pending.value, now_ms, now_ms)
                _truncate(fetcher, now_ms)
            pause_ms = self.cluster.rng.randrange(1, 40)
            self.cluster.happen(pause_ms, self.guarded, self.life, self.poll, fetcher)

        target = self.cluster.brokers[fetcher.leader_id]
        self.cluster.exchange(self, target, request).on_done(done)

    def _flush_cut(
        self, fetcher: ReplicaFetcher, log: PartitionLog, flushed: Callable[[], None]
    ) -> None:
        """Make a truncation durable: nothing was fetched since."""
        if self.partition is None or self.partition.log is not log:
            return  # it was dropped
        flush(log, self.cluster.clock.ms)
        flushed()
        self.poll(fetcher)

    # A leader

    def answer(self, request: FetchValues | ListOffsetsRequest) -> Any:
        """Return the response to another broker."""
        if isinstance(request, FetchValues):
            return self._answer_fetch(request)
        return self._answer_offsets(request)

    def _answer_fetch(self, request: FetchValues) -> FetchAnswer:
        ((key, requested),) = request.partitions.items()
        partition = self.partition

        def answered(
            code: ErrorCode = ErrorCode.NONE,
            records: Buffer = b"",
            diverging: tuple[int, int] | None = None,
        ) -> FetchAnswer:
            offsets = (-1, -1, -1)
            if partition is not None and not code:
                log_of = partition.log
                offsets = (log_of.high_watermark, -1, log_of.log_start_offset)
            size = len(records)
            found = FetchedPartition(key, code, *offsets, None, bytes(records), size, diverging)
            return FetchAnswer(0, 0, [found])

        if partition is None:
            return answered(ErrorCode.UNKNOWN_TOPIC_ID)
        try:
            data, diverging = partition.read_for_follower(
                request.replica_id,
                request.replica_epoch,
                requested,
                requested[-1],
                now_ms=self.cluster.clock.ms,
                min_one_message=True,
            )
        except KafkaError as error:
            return answered(error.code)
        records = b"" if data is None else data[0]
        if isinstance(records, FileSlice):
            records = records.read()
        return answered(records=records, diverging=diverging)

    def _answer_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked, partition = request.topics[0].partitions[0], self.partition
        answer = _Offsets.ListOffsetsPartitionResponse(partition_index=0)
        try:
            if partition is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partition.check_leader(asked.current_leader_epoch)
            end, start = partition.log.log_end_offset, partition.log.log_start_offset
            answer.offset = end if asked.timestamp == LATEST_TIMESTAMP else start
        except KafkaError as error:
            answer.error_code = int(error.code)
        return ListOffsetsResponse(topics=[_Offsets(name=TOPIC, partitions=[answer])])

    def produce(self, value: bytes, count: int, timeout_ms: int) -> None:
        """Append records with acks=all; what is answered is checked."""
        if self.partition is None:
            return
        values = [value + b".%d" % number for number in range(count)]
        wait = ProduceWait(self, values, self.partition.log.log_end_offset)
        code = self.append(values, wait)
        if code is not ErrorCode.NONE:
            self.cluster.produced[code.name] += 1
        elif not wait.is_over:
            self.cluster.happen(timeout_ms, self.guarded, self.life, wait.expire)

    def append(self, values: list[bytes], wait: ReplicationWait) -> ErrorCode:
        """Append one batch with acks=all; return why it is refused."""
        partition, now_ms = self.partition, self.cluster.clock.ms
        assert partition is not None
        batch = encode_batch([(now_ms, None, one, ()) for one in values])
        try:
            info, leading = self.replicas.append(partition, memoryview(batch), -1, now_ms)
        except KafkaError as error:
            return error.code
        if leading is not None:
            leading.acknowledge(info.last_offset + 1, wait, 0)
        else:
            wait.acknowledged(0, ErrorCode.NONE)
        return ErrorCode.NONE

    def send_to_controller(self, request: AlterPartitionRequest) -> Pending[Any]:
        """Send a request that may be lost, and its response as well."""
        cluster, life = self.cluster, self.life
        pending: Pending[Any] = Pending()

        def arrive() -> None:
            response = cluster.controller.alter_partition(request)
            cluster.carry(0, self.node_id, self.guarded, life, complete, pending, response)

        cluster.carry(self.node_id, 0, arrive)
        cluster.happen(REQUEST_TIMEOUT_MS, self.guarded, life, fail, pending)
        return pending


class ProduceWait:
    """One produce request that waits for replication."""

    def __init__(self, broker: SimulatedBroker, values: list[bytes], first_offset: int) -> None:
        self._broker = broker
        self._values = values
        self._first_offset = first_offset
        self.is_over = False

    def acknowledged(self, _position: int, code: ErrorCode) -> None:
        """Answer the producer."""
        if self.is_over:
            return
        self.is_over = True
        cluster = self._broker.cluster
        cluster.produced[code.name] += 1
        if code is ErrorCode.NONE:
            cluster.checks.observe(self._broker)  # what was committed in this very event
            for number, value in enumerate(self._values):
                cluster.checks.acknowledges(value, self._first_offset + number)

    def expire(self) -> None:
        """Answer that it took too long."""
        if not self.is_over:
            self.acknowledged(0, ErrorCode.REQUEST_TIMED_OUT)
            partition = self._broker.partition
            if partition is not None and partition.leading is not None:
                partition.leading.acknowledgements.forget_expired()


def flush(log: PartitionLog, now_ms: int) -> None:
    """Make a log durable up to its end."""
    job = log.flushes.start(now_ms)
    if job is not None:
        job.run()
        log.flushes.completed(job)


def complete(pending: Pending[Any], response: Any) -> None:
    """Complete a request; of two copies of a response the first counts."""
    pending.complete(response)


def fail(pending: Pending[Any]) -> None:
    """Fail a request that got no response in time."""
    pending.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION))


def _truncate(fetcher: ReplicaFetcher, now_ms: int) -> None:
    fetcher.take_cuts()
    fetcher.truncate(1, now_ms, now_ms, lambda _log: False)
