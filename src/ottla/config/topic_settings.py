"""Settings of a topic.

Kafka: org.apache.kafka.common.config.TopicConfig, org.apache.kafka.storage.internals.log.LogConfig.
"""

from __future__ import annotations

from ottla.config.checks import (
    GZIP_LEVEL,
    THROTTLED_REPLICAS,
    at_least,
    between,
    entries_of,
    one_of,
)
from ottla.config.definition import MAX_LONG, Bool, ConfigTable, Double, Int, Long, Names, Text, key


class TopicSettings(ConfigTable):
    """Storage of the partitions of one topic."""

    cleanup_policy: Names = key(
        ["delete"],
        "What happens to old segments: delete, compact, both or none.",
        entries_of("compact", "delete"),
    )
    compression_gzip_level: Int = key(-1, "Compression level of gzip.", GZIP_LEVEL)
    compression_lz4_level: Int = key(9, "Compression level of lz4.", between(1, 17))
    compression_type: Text = key(
        "producer",
        "Codec of stored batches; producer keeps what the client chose.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_zstd_level: Int = key(3, "Compression level of zstd.", between(-131_072, 22))
    delete_retention_ms: Long = key(
        86_400_000, "How long tombstones stay in a compacted topic.", at_least(0)
    )
    file_delete_delay_ms: Long = key(
        60_000, "Delay before a deleted segment's files are removed.", at_least(0)
    )
    flush_messages: Long = key(
        MAX_LONG, "Records after which the log is flushed to disk.", at_least(1)
    )
    flush_ms: Long = key(MAX_LONG, "Time after which the log is flushed to disk.", at_least(0))
    follower_replication_throttled_replicas: Names = key(
        [], "Followers that are throttled, as partition:broker pairs or *.", THROTTLED_REPLICAS
    )
    index_interval_bytes: Int = key(
        4096, "Bytes of log between two entries of the offset index.", at_least(0)
    )
    internal_segment_bytes: Int | None = key(None, "Size of a segment, for tests.", internal=True)
    leader_replication_throttled_replicas: Names = key(
        [], "Leaders that are throttled, as partition:broker pairs or *.", THROTTLED_REPLICAS
    )
    local_retention_bytes: Long = key(
        -2,
        "Bytes of a partition kept on local disk when it is tiered; -2 follows retention.bytes.",
        at_least(-2),
    )
    local_retention_ms: Long = key(
        -2, "Time segments stay on local disk when tiered; -2 follows retention.ms.", at_least(-2)
    )
    max_compaction_lag_ms: Long = key(
        MAX_LONG, "Age at which a record becomes due for compaction.", at_least(1)
    )
    max_message_bytes: Int = key(
        1_048_588, "Largest batch of records, after compression.", at_least(0)
    )
    message_timestamp_after_max_ms: Long = key(
        3_600_000, "How far ahead of the broker's clock a record's timestamp may be.", at_least(0)
    )
    message_timestamp_before_max_ms: Long = key(
        MAX_LONG, "How far before the broker's clock a record's timestamp may be.", at_least(0)
    )
    message_timestamp_type: Text = key(
        "CreateTime",
        "Whether timestamps are set by the producer or by the append.",
        one_of("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: Double = key(
        0.5, "Share of the log that must be dirty before it is cleaned.", between(0, 1)
    )
    min_compaction_lag_ms: Long = key(
        0, "A record stays uncompacted for at least this long.", at_least(0)
    )
    min_insync_replicas: Int = key(
        1,
        "Replicas that must have a record before a produce with acks=all is acknowledged.",
        at_least(1),
    )
    preallocate: Bool = key(False, "Reserve a segment's whole size when it is created.")
    remote_log_copy_disable: Bool = key(False, "Stop copying segments to remote storage.")
    remote_log_delete_on_disable: Bool = key(False, "Delete remote data when tiering is disabled.")
    remote_storage_enable: Bool = key(False, "Enable tiered storage for this topic.")
    retention_bytes: Long = key(-1, "Bytes of a partition to keep; -1 has no limit.")
    retention_ms: Long = key(604_800_000, "Time to keep a segment; -1 has no limit.", at_least(-1))
    segment_bytes: Int = key(1_073_741_824, "Size of a segment.", at_least(1_048_576))
    segment_index_bytes: Int = key(10_485_760, "Size of an offset index.", at_least(4))
    segment_jitter_ms: Long = key(
        0, "Random jitter of the time before a new segment is rolled.", at_least(0)
    )
    segment_ms: Long = key(604_800_000, "Time before a new segment is rolled.", at_least(1))
    unclean_leader_election_enable: Bool = key(
        False, "Let a replica that is not in sync lead when no other is left; records may be lost."
    )
