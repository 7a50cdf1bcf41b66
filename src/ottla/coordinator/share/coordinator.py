"""The share coordinator's façade: one method per API, request in, pending response out.

Kafka: org.apache.kafka.coordinator.share.ShareCoordinatorService.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.coordinator.runtime import CoordinatorRuntime, Result
from ottla.coordinator.runtime.active import RuntimeEnvironment, ShardState
from ottla.coordinator.runtime.java_hash import partition_for
from ottla.coordinator.runtime.loader import LoadTimes
from ottla.coordinator.runtime.log import full_error_text, operation_error
from ottla.coordinator.runtime.shard import gather, recover
from ottla.coordinator.share.shard import ShareShard, StateChange
from ottla.coordinator.share.state import UNINITIALIZED_OFFSET, ShareKey, StateBatch
from ottla.errors import KafkaError
from ottla.protocol.apis.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from ottla.protocol.apis.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ottla.protocol.apis.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
)
from ottla.protocol.apis.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from ottla.protocol.apis.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from ottla.purgatory.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.coordinator.runtime import CoordinatorLog
    from ottla.coordinator.share.shard import HasPartition, ShareCoordinatorConfig
    from ottla.coordinator.share.state import ShareState
    from ottla.protocol.schema import Response
    from ottla.purgatory.loop import Loop
    from ottla.types import Uuid

T = TypeVar("T")
_NO_LEADER_EPOCH = 0


class ShareCoordinator:
    """The share partitions of the partitions of `__share_group_state` that this node leads.

    has_partition says whether a topic with an id has a partition; delete_before deletes the records
    of a partition of the state topic below an offset; partition_count returns how many partitions
    the topic has, None before it exists. on_fault is called for internal errors.
    """

    def __init__(
        self,
        config: ShareCoordinatorConfig,
        *,
        log: CoordinatorLog,
        loop: Loop,
        has_partition: HasPartition,
        delete_before: Callable[[int, int], None],
        partition_count: Callable[[], int | None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._config = config
        self._timer = loop.timer
        self._clock = loop.clock
        self._delete_before = delete_before
        self._partition_count = partition_count
        self.runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            RuntimeEnvironment(
                log,
                loop,
                config.write_timeout_ms,
                on_fault,
                "share",
                config.load_buffer_bytes,
            ),
            lambda environment: ShareShard(environment, config, has_partition),
        )
        self.write_times = LoadTimes()
        """How long writes of states took until they were committed."""
        self.pruned_offsets: dict[int, int] = {}
        """The offset of the last pruning, by partition of the state topic."""
        self._schedule_pruning()

    def partition_for(self, key: str) -> int:
        """Return the partition of `__share_group_state` that owns a share partition."""
        return partition_for(key, self._partition_count() or self._config.num_partitions)

    # ---------------------------------------------------------------- events from the broker

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition of which this node became the leader."""
        self.runtime.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Unload a partition that another node leads, or that was deleted."""
        self.runtime.on_resigned(partition, leader_epoch)

    def on_high_watermark(self, partition: int, offset: int) -> None:
        """Release what waits for committed records."""
        self.runtime.on_high_watermark(partition, offset)

    def on_topics_deleted(self, topics: Iterable[tuple[str, Uuid]]) -> None:
        """Forget the share partitions of deleted topics."""
        ids = [topic_id for _, topic_id in topics]
        self.runtime.write_all(lambda shard: shard.forget_topics(ids))

    def on_topics_changed(self, names: Iterable[str]) -> None:
        """Ignore changes of topics: each share partition is initialised by itself."""

    def close(self) -> None:
        """Unload all partitions; pending responses fail with NOT_COORDINATOR."""
        self.runtime.close()

    # ---------------------------------------------------------------- requests

    def initialize(
        self, request: InitializeShareGroupStateRequest
    ) -> Pending[InitializeShareGroupStateResponse]:
        """Begin share partitions."""
        topic_result = InitializeShareGroupStateResponse.InitializeStateResult
        return self._each(
            request,
            InitializeShareGroupStateResponse,
            topic_result,
            action="initialize share group state",
            operation=lambda shard, key, part: shard.initialize(
                key, part.state_epoch, part.start_offset
            ),
        )

    def read(self, request: ReadShareGroupStateRequest) -> Pending[ReadShareGroupStateResponse]:
        """Return states to the leaders of partitions."""
        topic_result = ReadShareGroupStateResponse.ReadStateResult
        partition_result = topic_result.PartitionResult

        def found(part: Any, state: ShareState) -> Any:
            return partition_result(
                partition=part.partition,
                state_epoch=state.state_epoch,
                start_offset=state.start_offset,
                state_batches=[
                    partition_result.StateBatch(**batch._asdict()) for batch in state.batches
                ],
            )

        return self._each(
            request,
            ReadShareGroupStateResponse,
            topic_result,
            action="read share group state",
            operation=lambda shard, key, part: shard.read(key, part.leader_epoch),
            found=found,
            unknown={"state_epoch": 0, "start_offset": 0, "state_batches": []},
        )

    def write(self, request: WriteShareGroupStateRequest) -> Pending[WriteShareGroupStateResponse]:
        """Apply changes of the leaders of partitions."""
        topic_result = WriteShareGroupStateResponse.WriteStateResult
        start_ms = self._clock.monotonic_ms()

        def apply(shard: ShareShard, key: ShareKey, part: Any) -> Result[None]:
            batches = tuple(
                StateBatch(
                    batch.first_offset,
                    batch.last_offset,
                    batch.delivery_state,
                    batch.delivery_count,
                )
                for batch in part.state_batches
            )
            return shard.write(
                key,
                StateChange(
                    part.state_epoch,
                    part.leader_epoch,
                    part.start_offset,
                    part.delivery_complete_count,
                    batches,
                ),
            )

        written = self._each(
            request,
            WriteShareGroupStateResponse,
            topic_result,
            action="write share group state",
            operation=apply,
        )

        def committed(_done: object) -> None:
            now_ms = self._clock.monotonic_ms()
            self.write_times.add(now_ms - start_ms, now_ms)

        written.on_done(committed)
        return written

    def delete(
        self, request: DeleteShareGroupStateRequest
    ) -> Pending[DeleteShareGroupStateResponse]:
        """Forget share partitions."""
        topic_result = DeleteShareGroupStateResponse.DeleteStateResult
        return self._each(
            request,
            DeleteShareGroupStateResponse,
            topic_result,
            action="delete share group state",
            operation=lambda shard, key, _: shard.delete(key),
        )

    def read_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> Pending[ReadShareGroupStateSummaryResponse]:
        """Return start offsets and counts of completed deliveries."""
        topic_result = ReadShareGroupStateSummaryResponse.ReadStateSummaryResult
        partition_result = topic_result.PartitionResult

        def found(part: Any, state: ShareState | None) -> Any:
            if state is None:
                return partition_result(
                    partition=part.partition,
                    state_epoch=0,
                    leader_epoch=_NO_LEADER_EPOCH,
                    start_offset=UNINITIALIZED_OFFSET,
                )
            return partition_result(
                partition=part.partition,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
            )

        return self._each(
            request,
            ReadShareGroupStateSummaryResponse,
            topic_result,
            action="read share group state summary",
            operation=lambda shard, key, _: shard.summary(key),
            found=found,
            unknown={"state_epoch": 0, "leader_epoch": 0, "start_offset": 0},
        )

    def _each(
        self,
        request: Any,
        response: type[Response],
        topic_result: type[Any],
        *,
        action: str,
        operation: Callable[[ShareShard, ShareKey, Any], Result[Any]],
        found: Callable[[Any, Any], Any] | None = None,
        unknown: Mapping[str, Any] = MappingProxyType({}),
    ) -> Pending[Any]:
        """Run an operation on each share partition of a request, and gather the results.

        A request without a group, topics or partitions gets an empty response, as in Kafka. A
        result with an error has the fields of unknown.
        """
        make: Any = response
        topics = request.topics
        if not topics or not request.group_id or not all(topic.partitions for topic in topics):
            return Pending.of(make(results=[]))

        def failed(part: Any, error: Exception, text: str | None) -> Any:
            return topic_result.PartitionResult(
                partition=part.partition,
                error_code=int(operation_error(error)),
                error_message=text,
                **unknown,
            )

        def one(topic_id: Uuid, part: Any) -> Pending[Any]:
            key = ShareKey(request.group_id, topic_id, part.partition)

            def answered(shard: ShareShard) -> Result[Any]:
                try:
                    result = operation(shard, key, part)
                except KafkaError as error:
                    return Result(failed(part, error, error.message))
                if found is None:
                    answer = topic_result.PartitionResult(partition=part.partition)
                else:
                    answer = found(part, result.response)
                return replace(result, response=answer)

            def not_written(error: Exception) -> Any:
                return failed(part, error, f"Unable to {action}: {full_error_text(error)}")

            return recover(self.runtime.write(self.partition_for(str(key)), answered), not_written)

        parts = {
            topic.topic_id: [one(topic.topic_id, part) for part in topic.partitions]
            for topic in topics
        }
        return gather(
            [pending for group in parts.values() for pending in group],
            lambda _: make(
                results=[
                    topic_result(topic_id=topic_id, partitions=[pending.value for pending in group])
                    for topic_id, group in parts.items()
                ]
            ),
        )

    # ---------------------------------------------------------------- pruning

    def _schedule_pruning(self) -> None:
        due_ms = self._clock.monotonic_ms() + self._config.prune_interval_ms
        self._timer.add(due_ms, lambda _now_ms: self.prune())

    def prune(self) -> None:
        """Delete the records of the state topic that no share partition needs."""
        self._schedule_pruning()
        for partition, state in self.runtime.partitions.items():
            if state is not ShardState.ACTIVE:
                continue
            prunable = self.runtime.read(
                partition, lambda shard, epoch: shard.snapshot_offsets.redundant_before(epoch)
            )
            if prunable.error is None and prunable.value is not None:
                self._delete_before(partition, prunable.value)
                self.pruned_offsets[partition] = prunable.value
