"""Groups of consumers and their committed offsets.

Kafka: org.apache.kafka.coordinator.group.GroupCoordinatorConfig.
"""

from __future__ import annotations

from ottla.config.checks import DISTINCT_NON_EMPTY, at_least, entries_of, one_of_any_case
from ottla.config.definition import HIGH, MAX_INT, ConfigTable, Int, Long, Names, Short, Text, key


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
