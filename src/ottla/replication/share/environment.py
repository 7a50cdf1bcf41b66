"""What share partitions need of their broker.

Kafka: the constructor arguments of kafka.server.share.SharePartition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clock import Clock
    from ottla.protocol.apis.read_share_group_state import (
        ReadShareGroupStateRequest,
        ReadShareGroupStateResponse,
    )
    from ottla.protocol.apis.write_share_group_state import (
        WriteShareGroupStateRequest,
        WriteShareGroupStateResponse,
    )
    from ottla.purgatory.pending import Pending
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.replication.partition import Partition
    from ottla.types import Uuid


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings in force of a share group (KIP-1240): its own, or the broker's."""

    record_lock_duration_ms: int = 30_000  # share.record.lock.duration.ms
    delivery_count_limit: int = 5  # share.delivery.count.limit
    partition_max_record_locks: int = 2_000  # share.partition.max.record.locks
    is_renew_enabled: bool = True  # share.renew.acknowledge.enable
    is_committed_only: bool = False  # share.isolation.level=read_committed
    auto_offset_reset: str = "latest"  # share.auto.offset.reset


class StateStore(Protocol):
    """The share coordinators, as the leader of a share partition uses them.

    The responses have a result for the share partition; no method fails as a whole.
    """

    def read(self, request: ReadShareGroupStateRequest) -> Pending[ReadShareGroupStateResponse]:
        """Return the state, and fence leaders of earlier epochs."""

    def write(self, request: WriteShareGroupStateRequest) -> Pending[WriteShareGroupStateResponse]:
        """Apply a change of the state."""


def _ignore(_load_ms: int) -> None:
    """Measure nothing."""


@dataclass(frozen=True, slots=True)
class ShareEnvironment:
    """Dependencies that all share partitions of a broker share.

    start_offset chooses where a new share partition begins, by its settings; KafkaError where that
    is not known now. log_end_offset returns where the partition's log ends. on_available is called
    when more records may be acquired, on_loaded with the milliseconds that a share partition took
    to load.
    """

    timer: TimingWheel
    clock: Clock
    store: StateStore
    settings: Callable[[str], ShareSettings]
    start_offset: Callable[[Partition, ShareSettings], int]
    log_end_offset: Callable[[Partition], int]
    on_available: Callable[[SharePartitionKey], None]
    on_loaded: Callable[[int], None] = _ignore
