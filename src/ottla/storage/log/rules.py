"""From a log's settings to the rules by which records are validated.

Kafka: the arguments of LogValidator in UnifiedLog.append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.records.batch import TimestampType
from ottla.records.compression import Compression
from ottla.records.validation_rules import ValidationRules

if TYPE_CHECKING:
    from ottla.storage.log.config import LogConfig


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
