"""What the runtime asks of a coordinator's state machine, one object a partition it leads.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorShard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.coordinator.runtime.result import CoordinatorRecord
    from ottla.coordinator.runtime.timers import ShardTimers
    from ottla.timeline import SnapshotRegistry


@dataclass(frozen=True, slots=True)
class ShardEnvironment:
    """What a shard is made of: the registry of its timelines, its timers, the clock."""

    partition: int
    registry: SnapshotRegistry
    timers: ShardTimers
    clock: Clock


class Shard(Protocol):
    """Replayed state in timelines, changed by `replay` alone; soft state in one named object."""

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        """Apply a record at its offset; producer_id is -1 outside a transaction."""

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return key and value as they stand in the log."""

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Return the record of the log's bytes; None for a kind that this shard does not know.

        Raises CorruptMessage.
        """

    def on_loaded(self) -> None:
        """Rebuild soft state: the replayed state is complete."""

    def on_unloaded(self) -> None:
        """Answer whatever waits with NOT_COORDINATOR: the partition has another leader."""
