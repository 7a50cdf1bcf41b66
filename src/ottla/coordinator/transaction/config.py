"""The settings of the transaction coordinator, with Kafka's defaults.

Kafka: TransactionLogConfig, TransactionStateManagerConfig.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionCoordinatorConfig:
    """Each field's comment is its name in the broker's configuration; times in milliseconds."""

    num_partitions: int = 50  # transaction.state.log.num.partitions
    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    abort_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    expire_interval_ms: int = 3_600_000  # …remove.expired.transaction.cleanup.interval.ms
    write_timeout_ms: int = 30_000  # request.timeout.ms
    load_buffer_bytes: int = 5_242_880  # transaction.state.log.load.buffer.size
    two_phase_commit: bool = False  # transaction.two.phase.commit.enable
