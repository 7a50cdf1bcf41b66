"""Share groups (KIP-932) and the coordinator of their state.

Kafka: ShareGroupConfig, ShareCoordinatorConfig.
"""

from __future__ import annotations

from ottla.config.checks import DISTINCT_NON_EMPTY, at_least, between
from ottla.config.definition import HIGH, LOW, ConfigTable, Int, Names, Short, Text, key


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
