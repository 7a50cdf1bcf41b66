"""Transactions and their coordinator.

Kafka: org.apache.kafka.coordinator.transaction.TransactionLogConfig and others.
"""

from __future__ import annotations

from ottla.config.checks import at_least
from ottla.config.definition import HIGH, LOW, Bool, ConfigTable, Int, Short, key


class TransactionSettings(ConfigTable):
    """Transaction timeouts and the transaction state topic."""

    add_partitions_to_txn_retry_backoff_max_ms: Int = key(
        100,
        "Longest time of retries before the producer must retry itself.",
        at_least(0),
        HIGH,
    )
    add_partitions_to_txn_retry_backoff_ms: Int = key(
        20,
        "Pause between a broker's own retries of adding a partition to a transaction.",
        at_least(1),
        HIGH,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = key(
        10_000, "How often timed-out transactions are rolled back.", at_least(1), LOW
    )
    transaction_max_timeout_ms: Int = key(
        900_000, "Longest timeout a producer may request.", at_least(1), HIGH
    )
    transaction_partition_verification_enable: Bool = key(
        True,
        "Check that a partition was added to the transaction before data is appended.",
        importance=LOW,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = key(
        3_600_000, "How often expired transactional ids are removed.", at_least(1), LOW
    )
    transaction_state_log_load_buffer_size: Int = key(
        5_242_880, "Bytes read at once when transactions are loaded.", at_least(1), HIGH
    )
    transaction_state_log_min_isr: Int = key(
        2, "min.insync.replicas of the transaction topic.", at_least(1), HIGH
    )
    transaction_state_log_num_partitions: Int = key(
        50, "Partitions of the transaction topic.", at_least(1), HIGH
    )
    transaction_state_log_replication_factor: Short = key(
        3, "Replicas of the transaction topic.", at_least(1), HIGH
    )
    transaction_state_log_segment_bytes: Int = key(
        104_857_600, "Segment size of the transaction topic.", at_least(1), HIGH
    )
    transaction_two_phase_commit_enable: Bool = key(
        False, "Allow transactions of an external two-phase commit coordinator.", importance=LOW
    )
    transactional_id_expiration_ms: Int = key(
        604_800_000, "A transactional id unused for this long expires.", at_least(1), HIGH
    )
