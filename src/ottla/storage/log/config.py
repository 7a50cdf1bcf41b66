"""The settings of one log, in Kafka's topic-level words.

Kafka: org.apache.kafka.storage.internals.log.LogConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.records.batch import TimestampType
from ottla.records.compression import Compression
from ottla.records.validation_rules import ValidationRules

FOREVER = 0x7FFF_FFFF_FFFF_FFFF
SAME_AS_TOTAL = -2
"""local.retention.ms and local.retention.bytes that follow retention.ms and retention.bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Attribute = topic config with `_`; defaults are Kafka 4.3's. -1 means no limit."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    index_interval_bytes: int = 4096
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = FOREVER
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False
    producer_id_expiration_ms: int = 86_400_000
    transaction_partition_verification_enable: bool = False
    preallocate_indexes: bool = True
    """Ours: whether the index files of active segments are preallocated as Kafka's."""

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner works on the log."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_by_retention(self) -> bool:
        """Whether old segments are deleted by age and size.

        An empty cleanup.policy keeps all records; those that the tier has go from this disk.
        """
        policy = self.cleanup_policy
        return "delete" in policy or (not policy and self.is_copied_to_tier)

    @property
    def is_tiered(self) -> bool:
        """Whether records may be in remote storage alone (KIP-405)."""
        return self.remote_storage_enable and not self.is_compacted

    @property
    def is_copied_to_tier(self) -> bool:
        """Whether segments are copied to remote storage: only copied ones leave this disk."""
        return self.is_tiered and not self.remote_log_copy_disable

    @property
    def disk_retention_ms(self) -> int:
        """How old records on this disk get; those that are copied have a limit of their own."""
        is_own = self.is_copied_to_tier and self.local_retention_ms != SAME_AS_TOTAL
        return self.local_retention_ms if is_own else self.retention_ms

    @property
    def disk_retention_bytes(self) -> int:
        """How many bytes stay on this disk, as `disk_retention_ms`."""
        is_own = self.is_copied_to_tier and self.local_retention_bytes != SAME_AS_TOTAL
        return self.local_retention_bytes if is_own else self.retention_bytes


def validation_rules(config: LogConfig, topic_partition: str) -> ValidationRules:
    """Return the rules that hold until the log's settings change; errors name the partition."""
    name = config.compression_type
    codec = {"producer": None, "uncompressed": Compression.NONE}.get(
        name, Compression.__members__.get(name.upper())
    )
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return ValidationRules(
        compression_type=codec,
        compression_level=levels.get(codec) if codec else None,
        timestamp_type=(
            TimestampType.LOG_APPEND_TIME
            if config.message_timestamp_type == "LogAppendTime"
            else TimestampType.CREATE_TIME
        ),
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        max_message_bytes=config.max_message_bytes,
        is_compacted=config.is_compacted,
        topic_partition=topic_partition,
    )
