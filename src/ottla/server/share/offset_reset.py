"""The first offset of a share group in a partition: share.auto.offset.reset.

Kafka: SharePartition.startOffsetDuringInitialization, ShareGroupAutoOffsetResetStrategy,
ShareFetchUtils.offsetFor*.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from ottla.replication.share.environment import ShareSettings

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"p(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:[.,]\d{0,9})?)s)?)?", re.IGNORECASE
)


def reset_offset(replica: Partition, settings: ShareSettings, now_ms: int) -> int:
    """Return the first offset to deliver; OFFSET_NOT_AVAILABLE without a record of that time."""
    replica.check_leader()
    log = replica.log
    strategy = settings.auto_offset_reset.lower()
    if strategy == "earliest":
        return log.log_start_offset
    if not strategy.startswith(_BY_DURATION):
        return log.high_watermark
    timestamp = now_ms - _duration_ms(strategy.removeprefix(_BY_DURATION))
    found = log.reads.offset_for_timestamp(max(0, timestamp))
    if found is None or found.offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"Offset for timestamp {timestamp} not found for topic partition: "
            f"{replica.topic_partition}",
        )
    return found.offset


def _duration_ms(text: str) -> int:
    """Return the milliseconds of a checked ISO 8601 duration without signs; 0 for another."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return 0
    days, hours, minutes = (int(match[group] or 0) for group in (1, 2, 3))
    seconds = float((match[4] or "0").replace(",", "."))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(seconds * 1000)
