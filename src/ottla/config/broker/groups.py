"""The coordinators: groups, committed offsets, share groups (KIP-932) and transactions.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
org.apache.kafka.coordinator.transaction.TransactionLogConfig and others; ShareGroupConfig,
ShareCoordinatorConfig.
"""

from __future__ import annotations

from ottla.config.checks import DISTINCT_NON_EMPTY, at_least, between, entries_of, one_of_any_case
from ottla.config.definition import (
    HIGH,
    LOW,
    MAX_INT,
    Bool,
    ConfigTable,
    Int,
    Long,
    Names,
    Short,
    Text,
    key,
)


class ClassicGroupSettings(ConfigTable):
    """The group coordinator, classic groups and offsets."""

    group_coordinator_append_linger_ms: Int = key(
        -1,
        "How long the group coordinator collects records before a write; -1 adapts.",
        at_least(-1),
    )
    group_coordinator_background_threads: Int = key(
        2, "Background threads of the group coordinator.", at_least(1), HIGH
    )
    group_coordinator_cached_buffer_max_bytes: Int = key(
        1_048_588, "Largest write buffer that is kept for reuse.", at_least(524_288)
    )
    group_coordinator_rebalance_protocols: Names = key(
        ["classic", "consumer", "streams"],
        "Enabled group protocols.",
        entries_of("consumer", "classic", "share", "streams", empty_allowed=False),
    )
    group_coordinator_threads: Int = key(4, "Threads of the group coordinator.", at_least(1), HIGH)
    group_initial_rebalance_delay_ms: Int = key(
        3000, "How long a new classic group waits for more members."
    )
    group_max_session_timeout_ms: Int = key(
        1_800_000, "Largest session timeout a classic member may request."
    )
    group_max_size: Int = key(MAX_INT, "Maximum number of members of a classic group.", at_least(1))
    group_min_session_timeout_ms: Int = key(
        6000, "Smallest session timeout a classic member may request."
    )
    offset_metadata_max_bytes: Int = key(
        4096, "Largest metadata a client may store with a committed offset.", importance=HIGH
    )
    offsets_commit_timeout_ms: Int = key(
        5000,
        "An offset commit that is not replicated within this time fails.",
        at_least(1),
        HIGH,
    )
    offsets_load_buffer_size: Int = key(
        5_242_880, "Bytes read at once when committed offsets are loaded.", at_least(1), HIGH
    )
    offsets_retention_check_interval_ms: Long = key(
        600_000, "How often expired offsets are removed.", at_least(1), HIGH
    )
    offsets_retention_minutes: Int = key(
        10_080, "Minutes that offsets of an empty group are kept.", at_least(1), HIGH
    )
    offsets_topic_compression_codec: Int = key(
        0, "Codec of the offsets topic, by its number.", importance=HIGH
    )
    offsets_topic_num_partitions: Int = key(
        50, "Partitions of the offsets topic.", at_least(1), HIGH
    )
    offsets_topic_replication_factor: Short = key(
        3, "Replicas of the offsets topic.", at_least(1), HIGH
    )
    offsets_topic_segment_bytes: Int = key(
        104_857_600, "Segment size of the offsets topic.", at_least(1), HIGH
    )


class ConsumerGroupSettings(ConfigTable):
    """Groups of the consumer protocol (KIP-848)."""

    group_consumer_assignment_interval_ms: Int = key(
        1000, "Minimum time between two assignments of a consumer group.", at_least(0)
    )
    group_consumer_assignors: Names = key(
        ["uniform", "range"],
        "Assignors of consumer groups; the first is the default.",
        DISTINCT_NON_EMPTY,
    )
    group_consumer_heartbeat_interval_ms: Int = key(
        5000, "Heartbeat interval given to members of consumer groups.", at_least(1)
    )
    group_consumer_max_assignment_interval_ms: Int = key(
        15_000, "Largest assignment interval a consumer group may request.", at_least(0)
    )
    group_consumer_max_heartbeat_interval_ms: Int = key(
        15_000, "Largest heartbeat interval a consumer group may request.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: Int = key(
        60_000, "Largest session timeout a consumer group may request.", at_least(1)
    )
    group_consumer_max_size: Int = key(
        MAX_INT, "Maximum number of members of a consumer group.", at_least(1)
    )
    group_consumer_migration_policy: Text = key(
        "bidirectional",
        "In which direction groups may migrate between the classic and the consumer protocol.",
        one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
    )
    group_consumer_min_assignment_interval_ms: Int = key(
        0, "Smallest assignment interval a consumer group may request.", at_least(0)
    )
    group_consumer_min_heartbeat_interval_ms: Int = key(
        5000, "Smallest heartbeat interval a consumer group may request.", at_least(1)
    )
    group_consumer_min_session_timeout_ms: Int = key(
        45_000, "Smallest session timeout a consumer group may request.", at_least(1)
    )
    group_consumer_regex_refresh_interval_ms: Int = key(
        600_000,
        "How often subscriptions by pattern are resolved again.",
        at_least(10_000),
        internal=True,
    )
    group_consumer_session_timeout_ms: Int = key(
        45_000,
        "A consumer group's member without a heartbeat for this long is removed.",
        at_least(1),
    )


class StreamsGroupSettings(ConfigTable):
    """Groups of the streams protocol (KIP-1071)."""

    group_streams_assignment_interval_ms: Int = key(
        1000, "Minimum time between two assignments of a streams group.", at_least(0)
    )
    group_streams_heartbeat_interval_ms: Int = key(
        5000, "Heartbeat interval given to members of streams groups.", at_least(1)
    )
    group_streams_initial_rebalance_delay_ms: Int = key(
        3000, "How long a new streams group waits for more members.", at_least(0)
    )
    group_streams_max_assignment_interval_ms: Int = key(
        15_000, "Largest assignment interval a streams group may request.", at_least(0)
    )
    group_streams_max_heartbeat_interval_ms: Int = key(
        15_000, "Largest heartbeat interval a streams group may request.", at_least(1)
    )
    group_streams_max_session_timeout_ms: Int = key(
        60_000, "Largest session timeout a streams group may request.", at_least(1)
    )
    group_streams_max_size: Int = key(
        MAX_INT, "Maximum number of members of a streams group.", at_least(1)
    )
    group_streams_max_standby_replicas: Int = key(
        2, "Maximum number of standby copies a streams group may request.", at_least(0)
    )
    group_streams_min_assignment_interval_ms: Int = key(
        0, "Smallest assignment interval a streams group may request.", at_least(0)
    )
    group_streams_min_heartbeat_interval_ms: Int = key(
        5000, "Smallest heartbeat interval a streams group may request.", at_least(1)
    )
    group_streams_min_session_timeout_ms: Int = key(
        45_000, "Smallest session timeout a streams group may request.", at_least(1)
    )
    group_streams_num_standby_replicas: Int = key(0, "Standby copies of each task.", at_least(0))
    group_streams_session_timeout_ms: Int = key(
        45_000,
        "A streams group's member without a heartbeat for this long is removed.",
        at_least(1),
    )


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


class ShareGroupSettings(ConfigTable):
    """Groups whose members share partitions record by record."""

    group_share_assignment_interval_ms: Int = key(
        1000, "Minimum time between two assignments of a share group.", at_least(0)
    )
    group_share_assignors: Names = key(
        ["simple"], "The assignor of share groups.", DISTINCT_NON_EMPTY
    )
    group_share_delivery_count_limit: Int = key(
        5, "How often a record is delivered before a share group archives it.", between(2, 10)
    )
    group_share_heartbeat_interval_ms: Int = key(
        5000, "Heartbeat interval given to members of share groups.", at_least(1)
    )
    group_share_initialize_retry_interval_ms: Int = key(
        30_000,
        "Pause before the state of a share group is initialised again.",
        at_least(1),
        LOW,
        internal=True,
    )
    group_share_max_assignment_interval_ms: Int = key(
        15_000, "Largest assignment interval a share group may request.", at_least(0)
    )
    group_share_max_delivery_count_limit: Int = key(
        10, "Largest delivery limit a share group may request.", between(5, 25)
    )
    group_share_max_heartbeat_interval_ms: Int = key(
        15_000, "Largest heartbeat interval a share group may request.", at_least(1)
    )
    group_share_max_partition_max_record_locks: Int = key(
        4000, "Largest number of locked records a share group may request.", between(2000, 10_000)
    )
    group_share_max_record_lock_duration_ms: Int = key(
        60_000, "Longest record lock a share group may request.", between(30_000, 3_600_000)
    )
    group_share_max_session_timeout_ms: Int = key(
        60_000, "Largest session timeout a share group may request.", at_least(1)
    )
    group_share_max_share_sessions: Int = key(
        2000, "Maximum number of share sessions on one broker.", at_least(1)
    )
    group_share_max_size: Int = key(
        200, "Maximum number of members of a share group.", between(1, 1000)
    )
    group_share_min_assignment_interval_ms: Int = key(
        0, "Smallest assignment interval a share group may request.", at_least(0)
    )
    group_share_min_delivery_count_limit: Int = key(
        2, "Smallest delivery limit a share group may request.", between(2, 5)
    )
    group_share_min_heartbeat_interval_ms: Int = key(
        5000, "Smallest heartbeat interval a share group may request.", at_least(1)
    )
    group_share_min_partition_max_record_locks: Int = key(
        100, "Smallest number of locked records a share group may request.", between(100, 2000)
    )
    group_share_min_record_lock_duration_ms: Int = key(
        15_000, "Shortest record lock a share group may request.", between(1000, 30_000)
    )
    group_share_min_session_timeout_ms: Int = key(
        45_000, "Smallest session timeout a share group may request.", at_least(1)
    )
    group_share_partition_max_record_locks: Int = key(
        2000,
        "Maximum number of records of one partition that are locked for delivery.",
        between(100, 10_000),
    )
    group_share_persister_class_name: Text = key(
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "Plug-in that stores the state of share partitions.",
        internal=True,
    )
    group_share_record_lock_duration_ms: Int = key(
        30_000, "How long a delivered record stays locked for its reader.", between(1000, 3_600_000)
    )
    group_share_session_timeout_ms: Int = key(
        45_000, "A share group's member without a heartbeat for this long is removed.", at_least(1)
    )
    share_coordinator_append_linger_ms: Int = key(
        -1,
        "How long the share coordinator collects records before a write; -1 adapts.",
        at_least(-1),
    )
    share_coordinator_cached_buffer_max_bytes: Int = key(
        1_048_588, "Largest write buffer that is kept for reuse.", at_least(524_288)
    )
    share_coordinator_cold_partition_snapshot_interval_ms: Int = key(
        300_000,
        "How often snapshots of idle share partitions are written.",
        at_least(1),
        LOW,
        internal=True,
    )
    share_coordinator_load_buffer_size: Int = key(
        5_242_880, "Bytes read at once when share state is loaded.", at_least(1), HIGH
    )
    share_coordinator_snapshot_update_records_per_snapshot: Int = key(
        500, "Updates between two snapshots of a share partition.", between(0, 500)
    )
    share_coordinator_state_topic_compression_codec: Int = key(
        0, "Codec of the share state topic, by its number.", importance=HIGH
    )
    share_coordinator_state_topic_min_isr: Short = key(
        2, "min.insync.replicas of the share state topic.", at_least(1), HIGH
    )
    share_coordinator_state_topic_num_partitions: Int = key(
        50, "Partitions of the share state topic.", at_least(1), HIGH
    )
    share_coordinator_state_topic_prune_interval_ms: Int = key(
        300_000, "How often superseded share state is deleted.", at_least(1), LOW, internal=True
    )
    share_coordinator_state_topic_replication_factor: Short = key(
        3, "Replicas of the share state topic.", at_least(1), HIGH
    )
    share_coordinator_state_topic_segment_bytes: Int = key(
        104_857_600, "Segment size of the share state topic.", at_least(1), HIGH
    )
    share_coordinator_threads: Int = key(1, "Threads of the share coordinator.", at_least(1))
    share_coordinator_write_timeout_ms: Int = key(
        5000,
        "A write of share state that is not replicated within this time fails.",
        at_least(1),
        HIGH,
    )
    share_fetch_purgatory_purge_interval_requests: Int = key(
        1000, "Waiting share fetches after which finished ones are purged."
    )
