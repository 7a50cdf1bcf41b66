"""Logs on disk and their cleaning; most are defaults of topic settings.

Kafka: org.apache.kafka.server.config.ServerLogConfigs, CleanerConfig.
"""

from __future__ import annotations

from ottla.config.checks import (
    DISTINCT_NON_EMPTY,
    DISTINCT_NON_EMPTY_OR_NULL,
    DISTINCT_OR_NULL,
    GZIP_LEVEL,
    at_least,
    between,
    entries_of,
    one_of,
)
from ottla.config.definition import (
    HIGH,
    LOW,
    MAX_LONG,
    Bool,
    ConfigTable,
    Double,
    Int,
    Long,
    Names,
    Text,
    key,
)


class LogSettings(ConfigTable):
    """Storage of partitions."""

    compression_gzip_level: Int = key(-1, "Compression level of gzip.", GZIP_LEVEL)
    compression_lz4_level: Int = key(9, "Compression level of lz4.", between(1, 17))
    compression_type: Text = key(
        "producer",
        "Codec of stored batches; producer keeps what the client chose.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        HIGH,
    )
    compression_zstd_level: Int = key(3, "Compression level of zstd.", between(-131_072, 22))
    cordoned_log_dirs: Names = key(
        [], "Log directories that get no new partitions; * means all of them.", DISTINCT_OR_NULL
    )
    log_cleanup_policy: Names = key(
        ["delete"],
        "What happens to old segments: delete, compact, both or none.",
        entries_of("compact", "delete"),
    )
    log_dir: Names = key(
        ["/tmp/kafka-logs"],  # noqa: S108 - Kafka's own default
        "Directory of the logs when log.dirs is not set.",
        DISTINCT_NON_EMPTY,
        HIGH,
    )
    log_dir_failure_timeout_ms: Long = key(
        30_000,
        "A broker stops when it cannot report a failed directory for this long.",
        at_least(1),
        LOW,
    )
    log_dirs: Names | None = key(None, "Directories of the logs.", DISTINCT_NON_EMPTY_OR_NULL, HIGH)
    log_flush_interval_messages: Long = key(
        MAX_LONG, "Records after which a partition is flushed to disk.", at_least(1), HIGH
    )
    log_flush_interval_ms: Long | None = key(
        None,
        "Time after which a partition is flushed to disk; the scheduler's interval when not set.",
        importance=HIGH,
    )
    log_flush_offset_checkpoint_interval_ms: Int = key(
        60_000, "How often recovery points are checkpointed.", at_least(0), HIGH
    )
    log_flush_scheduler_interval_ms: Long = key(
        MAX_LONG, "How often partitions are checked for flushing.", importance=HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms: Int = key(
        60_000, "How often log start offsets are checkpointed.", at_least(0), HIGH
    )
    log_index_interval_bytes: Int = key(
        4096, "Bytes of log between two entries of the offset index.", at_least(0)
    )
    log_index_size_max_bytes: Int = key(10_485_760, "Size of an offset index.", at_least(4))
    log_initial_task_delay_ms: Long = key(
        30_000,
        "Delay before retention and checkpoints begin, for tests.",
        at_least(0),
        LOW,
        internal=True,
    )
    log_local_retention_bytes: Long = key(
        -2,
        "Bytes of a partition kept on local disk when it is tiered; -2 follows retention.bytes.",
        at_least(-2),
    )
    log_local_retention_ms: Long = key(
        -2, "Time segments stay on local disk when tiered; -2 follows retention.ms.", at_least(-2)
    )
    log_message_timestamp_after_max_ms: Long = key(
        3_600_000, "How far ahead of the broker's clock a record's timestamp may be.", at_least(0)
    )
    log_message_timestamp_before_max_ms: Long = key(
        MAX_LONG, "How far before the broker's clock a record's timestamp may be.", at_least(0)
    )
    log_message_timestamp_type: Text = key(
        "CreateTime",
        "Whether timestamps are set by the producer or by the append.",
        one_of("CreateTime", "LogAppendTime"),
    )
    log_preallocate: Bool = key(False, "Reserve a segment's whole size when it is created.")
    log_retention_bytes: Long = key(
        -1, "Bytes of a partition to keep; -1 has no limit.", importance=HIGH
    )
    log_retention_check_interval_ms: Long = key(
        300_000, "How often old segments are deleted.", at_least(1)
    )
    log_retention_hours: Int = key(
        168, "Hours to keep a segment; minutes and ms take precedence.", importance=HIGH
    )
    log_retention_minutes: Int | None = key(
        None, "Minutes to keep a segment; ms takes precedence.", importance=HIGH
    )
    log_retention_ms: Long | None = key(
        None, "Time to keep a segment; -1 has no limit.", importance=HIGH
    )
    log_roll_hours: Int = key(
        168, "Hours before a new segment is rolled; ms takes precedence.", at_least(1), HIGH
    )
    log_roll_jitter_hours: Int = key(
        0, "Hours of random jitter of that time; ms takes precedence.", at_least(0), HIGH
    )
    log_roll_jitter_ms: Long | None = key(
        None, "Random jitter of the time before a new segment is rolled.", importance=HIGH
    )
    log_roll_ms: Long | None = key(None, "Time before a new segment is rolled.", importance=HIGH)
    log_segment_bytes: Int = key(1_073_741_824, "Size of a segment.", at_least(1_048_576), HIGH)
    log_segment_delete_delay_ms: Long = key(
        60_000, "Delay before a deleted segment's files are removed.", at_least(0), HIGH
    )
    message_max_bytes: Int = key(
        1_048_588, "Largest batch of records, after compression.", at_least(0), HIGH
    )
    min_insync_replicas: Int = key(
        1,
        "Replicas that must have a record before a produce with acks=all is acknowledged.",
        at_least(1),
        HIGH,
    )
    num_recovery_threads_per_data_dir: Int = key(
        2,
        "Threads of each directory that recover logs at start and flush them at the end.",
        at_least(1),
        HIGH,
    )
    producer_id_expiration_check_interval_ms: Int = key(
        600_000, "How often expired producer ids are removed.", at_least(1), LOW, internal=True
    )
    producer_id_expiration_ms: Int = key(
        86_400_000, "A producer id that was not used for this long expires.", at_least(1), LOW
    )


class CleanerSettings(ConfigTable):
    """Cleaning of compacted partitions."""

    log_cleaner_backoff_ms: Long = key(
        15_000, "Pause of the cleaner when no log needs it.", at_least(0)
    )
    log_cleaner_dedupe_buffer_size: Long = key(
        134_217_728, "Memory of all cleaners together for the map of keys."
    )
    log_cleaner_delete_retention_ms: Long = key(
        86_400_000, "How long tombstones stay in compacted topics.", at_least(0)
    )
    log_cleaner_enable: Bool = key(True, "Run the log cleaner.")
    log_cleaner_io_buffer_load_factor: Double = key(0.9, "Maximum load factor of the map of keys.")
    log_cleaner_io_buffer_size: Int = key(
        524_288, "Memory of all cleaners together for reading and writing.", at_least(0)
    )
    log_cleaner_io_max_bytes_per_second: Double = key(
        1.7976931348623157e308, "Rate that all cleaners together may read and write."
    )
    log_cleaner_max_compaction_lag_ms: Long = key(
        MAX_LONG, "Age at which a record becomes due for compaction.", at_least(1)
    )
    log_cleaner_min_cleanable_ratio: Double = key(
        0.5, "Share of a log that must be dirty before it is cleaned.", between(0, 1)
    )
    log_cleaner_min_compaction_lag_ms: Long = key(
        0, "A record stays uncompacted for at least this long.", at_least(0)
    )
    log_cleaner_threads: Int = key(1, "Number of cleaners.", at_least(0))
