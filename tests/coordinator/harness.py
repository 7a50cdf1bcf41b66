"""A group coordinator on a log in memory and a clock that only the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.coordinator.group import (
    ConsumerGroupConfig,
    GroupCoordinator,
    GroupCoordinatorConfig,
    GroupDependencies,
    RequestContext,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from ottla.coordinator.group.groups import KINDS
from ottla.coordinator.runtime.active import ShardState
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state_summary,
)
from ottla.purgatory.loop import Loop
from ottla.purgatory.pending import Pending
from ottla.purgatory.timing_wheel import TimingWheel
from ottla.purgatory.work import Worker
from ottla.records.batch import RecordBatch
from ottla.records.batches import iterate_batches
from ottla.types import Uuid
from tests.records.batch_changes import assign_offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.coordinator.group.groups import Kinds
    from ottla.coordinator.group.shard import GroupShard

EPOCH_MS = 1_000_000_000_000


_LOADING_TURNS = 20
"""Some hundred records are loaded in each; some logs wait for their commit for longer."""


class VirtualClock:
    """Wall and monotonic time, moved by hand."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.step_ms = 0
        """How far the wall clock was stepped."""

    def now_ms(self) -> int:
        return EPOCH_MS + self.time_ms + self.step_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


class MemoryLog:
    """Partitions as lists of batches; commits at once unless holding."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.high_watermarks: dict[int, int] = {}
        self.is_holding = False
        self.next_error: ErrorCode | None = None
        self.on_high_watermark: Callable[[int, int], None] = lambda _partition, _offset: None
        self.slice_bytes: int | None = None
        self.batch_bytes = 1_048_588
        self.start_offsets: dict[int, int] = {}
        self.end_offsets: dict[int, int] = {}
        """Of logs whose last batches were compacted away."""

    def append(
        self, partition: int, batch: bytearray, leader_epoch: int, **_transaction: object
    ) -> int:
        if self.next_error is not None:
            error, self.next_error = self.next_error, None
            raise KafkaError(error)
        if len(batch) > self.batch_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        header = RecordBatch(memoryview(batch))
        assign_offset(header, self.end_offset(partition), leader_epoch)
        header.check_crc()
        self.batches.setdefault(partition, []).append(bytes(batch))
        if not self.is_holding:
            self.commit(partition)
        return self.end_offset(partition)

    def verify_transaction(self, *_transaction: object) -> Pending[object]:
        """Agree with every transaction."""
        return Pending.of(None)

    def commit(self, partition: int) -> None:
        """Move the high watermark to the end and report it."""
        self.high_watermarks[partition] = self.end_offset(partition)
        self.on_high_watermark(partition, self.end_offset(partition))

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Return what a log returns: the first batch complete, the last one cut at the limit."""
        limit = max_bytes if self.slice_bytes is None else self.slice_bytes
        found = b""
        for batch in self.batches.get(partition, ()):
            if RecordBatch(batch).next_offset <= offset:
                continue
            found += batch[: limit - len(found)] if found else batch
            if len(found) >= limit:
                break
        return found

    def max_batch_bytes(self, partition: int) -> int:
        return self.batch_bytes

    def start_offset(self, partition: int) -> int:
        return self.start_offsets.get(partition, 0)

    def end_offset(self, partition: int) -> int:
        batches = self.batches.get(partition)
        end_offset = RecordBatch(batches[-1]).next_offset if batches else 0
        return max(end_offset, self.end_offsets.get(partition, 0))

    def high_watermark(self, partition: int) -> int:
        return self.high_watermarks.get(partition, 0)

    def first_unstable_offset(self, partition: int) -> int:
        """Return the base offset of the first batch whose transaction has no marker.

        A batch that compaction has emptied stands for a producer's last sequence only.
        """
        opened: dict[int, int] = {}
        for data in self.batches.get(partition, ()):
            batch = RecordBatch(data)
            if batch.is_control:
                opened.pop(batch.producer_id, None)
            elif batch.is_transactional and batch.record_count:
                opened.setdefault(batch.producer_id, batch.base_offset)
        return min(opened.values(), default=self.end_offset(partition))

    def record_batches(self, partition: int) -> list[RecordBatch]:
        """Return what was written."""
        return [
            batch
            for data in self.batches.get(partition, ())
            for batch in iterate_batches(memoryview(data))
        ]


class Topics:
    """Topic names and ids."""

    def __init__(self, *names: str) -> None:
        self.ids = {name: self.id_of(name) for name in names}
        self.counts: dict[str, int] = {}
        self.racks: dict[str, list[list[str]]] = {}

    @staticmethod
    def id_of(name: str, incarnation: int = 1) -> Uuid:
        return Uuid(name.encode().ljust(15, b".")[:15] + bytes([incarnation]))

    def topic_id(self, name: str) -> Uuid | None:
        return self.ids.get(name)

    def has_partition(self, name: str, partition: int) -> bool:
        return name in self.ids and partition < self.counts.get(name, 2)

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name, 2) if name in self.ids else None

    @property
    def metadata_offset(self) -> int:
        return len(self.ids)

    def topic_names(self) -> list[str]:
        return list(self.ids)

    def partition_racks(self, name: str) -> list[list[str]]:
        return self.racks.get(name) or [[] for _ in range(self.partition_count(name) or 0)]

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)


class MemoryPersister:
    """Share coordinators that do all they are asked to, or fail with a code."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.requests: list[Any] = []
        self.states: dict[tuple[Uuid, int], Any] = {}

    def initialize(self, request: Any) -> Pending[Any]:
        return self._answer(request, initialize_share_group_state.InitializeShareGroupStateResponse)

    def delete(self, request: Any) -> Pending[Any]:
        return self._answer(request, delete_share_group_state.DeleteShareGroupStateResponse)

    def read_summary(self, request: Any) -> Pending[Any]:
        return self._answer(
            request,
            read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
            state_epoch=0,
            leader_epoch=0,
            start_offset=-1,
        )

    def _answer(self, request: Any, response: Any, **fields: Any) -> Pending[Any]:
        self.requests.append(request)
        result = results_class(response)
        return Pending.of(
            response(
                results=[
                    result(
                        topic_id=topic.topic_id,
                        partitions=[
                            result.PartitionResult(
                                partition=part.partition,
                                **(
                                    fields
                                    | {"error_code": int(self.code)}
                                    | self.states.get((topic.topic_id, part.partition), {})
                                ),
                            )
                            for part in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )


def results_class(response: Any) -> Any:
    """Return the class of a response's results by topic."""
    return next(one for name, one in vars(response).items() if name.endswith("Result"))


def loop_of(timer: TimingWheel, clock: Clock, elapsed_s: Callable[[], float] | None = None) -> Loop:
    """Return a loop whose turns are milliseconds of virtual time."""

    def call_soon(turn: Callable[[], None]) -> None:
        timer.add(clock.monotonic_ms() + 1, lambda _now_ms: turn())

    return Loop(clock, timer, Worker(call_soon, elapsed_s))


class World:
    """One coordinator that leads every partition, all in one partition by default."""

    def __init__(self, config: GroupCoordinatorConfig | None = None) -> None:
        self.config = config or GroupCoordinatorConfig(offsets_topic_num_partitions=1)
        self.consumer_config = ConsumerGroupConfig()
        self.streams_config = StreamsGroupConfig()
        self.share_config = ShareGroupConfig()
        self.clock = VirtualClock()
        self.timer = TimingWheel(0)
        self.loop = loop_of(self.timer, self.clock)
        self.log = MemoryLog()
        self.topics = Topics("t", "u")
        self.faults: list[Exception] = []
        self.leader_epoch = 0
        self.uuid_count = 0
        self.persister = MemoryPersister()
        self.coordinator = self.make()

    def make(self) -> GroupCoordinator:
        return self.make_with()

    def make_with(self, kinds: Kinds = KINDS) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            self.config,
            log=self.log,
            loop=self.loop,
            dependencies=GroupDependencies(
                self.topics,
                lambda _group_id: self.consumer_config,
                self._new_member_id,
                lambda _group_id: self.streams_config,
                lambda _group_id: self.share_config,
            ),
            persister=self.persister,
            new_uuid=self._new_uuid,
            on_fault=self._fault,
            offsets_partitions=lambda: None,
            kinds=kinds,
        )
        self.log.on_high_watermark = coordinator.on_high_watermark
        return coordinator

    def _fault(self, error: Exception) -> None:
        raise error

    def _new_uuid(self) -> str:
        self.uuid_count += 1
        return str(self.uuid_count)

    def _new_member_id(self) -> str:
        return self._new_uuid()

    def elect(self) -> World:
        """Elect the coordinator for all its partitions and load them."""
        self.leader_epoch += 1
        for partition in range(self.config.offsets_topic_num_partitions):
            self.coordinator.on_elected(partition, self.leader_epoch)
        self.advance(0)
        for _ in range(_LOADING_TURNS):
            if ShardState.LOADING in self.coordinator.runtime.partitions.values():
                self.advance(1)
        return self

    def resign(self) -> None:
        """Let another node lead."""
        for partition in range(self.config.offsets_topic_num_partitions):
            self.coordinator.on_resigned(partition)

    def advance(self, delay_ms: int) -> None:
        """Advance the clock; in the end nothing waits without an end."""
        self.pass_time(delay_ms)
        stalls = list(self.coordinator.runtime.stalls())
        assert not stalls, stalls

    def pass_time(self, delay_ms: int) -> None:
        """Advance the clock timer by timer, so that each runs at its own deadline."""
        target_ms = self.clock.time_ms + delay_ms
        while (deadline_ms := self.timer.next_deadline()) is not None and deadline_ms <= target_ms:
            self.clock.time_ms = max(self.clock.time_ms, deadline_ms)
            self.timer.advance(self.clock.time_ms)
        self.clock.time_ms = target_ms

    def shard(self, partition: int = 0) -> GroupShard:
        """Return a partition's state machine."""
        return self.coordinator.runtime.shard(partition)


class FaultyWorld(World):
    """Keeps what was logged as a fault."""

    def _fault(self, error: Exception) -> None:
        self.faults.append(error)


def context(version: int, client_id: str = "client") -> RequestContext:
    """Return the context of a request of that version."""
    return RequestContext(client_id, "/127.0.0.1", version)


def ready(pending: object) -> object:
    """Return the value of a completed Pending."""
    return pending.value  # type: ignore[attr-defined]  # tests read it right after the call
