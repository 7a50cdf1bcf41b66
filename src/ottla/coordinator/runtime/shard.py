"""The interface of a coordinator's state machine, one object per partition that it leads.

Kafka: org.apache.kafka.coordinator.common.runtime.CoordinatorShard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clock import Clock
    from ottla.coordinator.runtime.result import CoordinatorRecord
    from ottla.coordinator.runtime.timers import ShardTimers
    from ottla.timeline import SnapshotRegistry


@dataclass(frozen=True, slots=True)
class ShardEnvironment:
    """A shard's dependencies: the registry of its timelines, its timers, the clock."""

    partition: int
    registry: SnapshotRegistry
    timers: ShardTimers
    clock: Clock


class Shard(Protocol):
    """Replayed state lives in timelines and changes only in `replay`; soft state in one object.

    is_compacted says that a record replaces all former ones of its key, so that loading replays the
    newest ones only.
    """

    is_compacted: bool

    def replay(self, offset: int, producer_id: int, record: CoordinatorRecord) -> None:
        """Apply a record at its offset; producer_id is -1 outside a transaction."""

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction."""

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Return key and value as stored in the log."""

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Return the decoded record; None for a record type that this shard does not know.

        Raises CorruptMessage.
        """

    def on_loaded(self) -> Iterator[None]:
        """Rebuild soft state after the replayed state is complete, in steps of some 10 µs.

        Requests are served between the steps.
        """

    def on_unloaded(self) -> None:
        """Fail pending responses with NOT_COORDINATOR: the partition has another leader."""
