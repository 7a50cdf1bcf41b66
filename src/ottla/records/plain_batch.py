"""The batch that nearly every producer sends: found good by one look, or left to the validator.

Hot path: `plain_header`. benchmarks/records.py.

Kafka: org.apache.kafka.storage.internals.log.LogValidator, on its way without conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TimestampType,
)
from ottla.records.crc32c import crc32c
from ottla.records.scan import scan_records
from ottla.records.validator import LOOP_BYTES, unfold

if TYPE_CHECKING:
    from ottla.records.validation_rules import ValidationRules

_ZSTD: Final = 4
_LARGEST_INT64: Final = (1 << 63) - 1
_BROKER_TIME: Final = TimestampType.LOG_APPEND_TIME  # an enum's members are found slowly


def plain_header(view: memoryview, rules: ValidationRules, now_ms: int) -> tuple[int, ...] | None:
    """Return the header of a client's batch of which `validate` would change nothing but the place.

    None says only that somebody has to look closer. Raises what `validate` would for records that
    do not decompress or unfold too far.
    """
    size = len(view)
    if size <= HEADER_BYTES:
        return None
    header = HEADER.unpack_from(view)
    base, length, _, magic, crc, attributes, delta, start_ms, newest_ms, _, _, _, count = header
    if (
        base
        or length + LOG_OVERHEAD_BYTES != size
        or magic != 2
        or not 0 <= attributes <= _ZSTD
        or delta < 0
        or count != delta + 1
        or size > rules.max_message_bytes
        or size > LOOP_BYTES
        or view.readonly
        or rules.timestamp_type is _BROKER_TIME
        or (rules.compression_type is not None and rules.compression_type != attributes)
        or crc32c(view[ATTRIBUTES_POSITION:]) != crc
    ):
        return None
    plain, start = view, HEADER_BYTES
    if attributes:
        plain, start = unfold(view, attributes, rules, None, is_client=True)
    latest = now_ms + rules.after_max_ms
    if latest > _LARGEST_INT64:
        return None
    verdict, largest, _ = scan_records(
        plain,
        start,
        len(plain),
        count,
        start_ms,
        now_ms - rules.before_max_ms,
        latest,
        rules.is_compacted,
    )
    return None if verdict or largest != newest_ms else header
