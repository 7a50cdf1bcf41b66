"""Errors of a batch as a whole: header, size and checksum, in Kafka's order and words.

Called when `records/validator.py` has found an error.

Kafka: org.apache.kafka.storage.internals.log.LogValidator.validateBatch,
ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.errors import CorruptMessage, ErrorCode, KafkaError
from ottla.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    MAGIC_POSITION,
    PRODUCER_EPOCH_POSITION,
    RecordBatch,
    claimed_bytes,
)
from ottla.records.batches import iterate_batches
from ottla.records.crc32c import crc32c
from ottla.records.validation_rules import OffloadRequired, invalid

if TYPE_CHECKING:
    from typing import NoReturn

    from ottla.records.validation_rules import ValidationRules

LOOP_BYTES: Final = 1_048_588
"""Maximum size (bytes) of records that are checked on the caller's thread: 2 to 7 ms of work.

It is Kafka's default of max.message.bytes: an uncompressed batch of that size is never offloaded.
"""


class UnreadableRecords(KafkaError):
    """Bytes that are not one batch of format 2: refused before the append."""


def only_batch(view: memoryview, *, is_client: bool) -> memoryview:
    """Return the one batch of format 2 in view, without trailing bytes that are no whole batch."""
    if is_client:
        size = clients_batch_size(view)
        if size < HEADER_BYTES:
            raise UnreadableRecords(ErrorCode.CORRUPT_MESSAGE)
        return view[:size]
    batches = list(islice(iterate_batches(view, partial_tail=True), 2))
    if any(batch.magic != 2 for batch in batches):
        raise UnreadableRecords(ErrorCode.INVALID_RECORD)
    if len(batches) != 1:
        raise invalid(
            "Compressed outer record has more than one batch"
            if batches
            else "Record batch has no batches at all"
        )
    return batches[0].buffer


def clients_batch_size(view: memoryview) -> int:
    """Return the size of the one batch that a client sent, whose header may end early.

    Raises the errors that Kafka returns before it looks up the partition's leader. Only an error of
    the first length or magic has a message.
    """
    try:
        size = claimed_bytes(view, 0)
    except CorruptMessage as error:
        raise UnreadableRecords(error.code, error.message) from error
    if size > len(view) or view[MAGIC_POSITION] != 2:
        raise UnreadableRecords(ErrorCode.INVALID_RECORD)
    try:
        is_alone = size + claimed_bytes(view, size) > len(view)
    except CorruptMessage as error:
        raise UnreadableRecords(error.code) from error
    if not is_alone:
        raise UnreadableRecords(ErrorCode.INVALID_RECORD)
    if size < PRODUCER_EPOCH_POSITION:  # Kafka reads the producer id here
        raise UnreadableRecords(ErrorCode.CORRUPT_MESSAGE)
    return size


def refuse_header(view: memoryview, rules: ValidationRules, *, is_client: bool) -> None:
    """Raise the error of a batch that the validator rejected; return when it has none."""
    batch = RecordBatch(view)
    if batch.base_offset and is_client:
        raise invalid(
            "The baseOffset of the record batch in the append to "
            f"{rules.topic_partition} should be 0, but it is {batch.base_offset}"
        )
    if len(view) > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {rules.topic_partition} is {len(view)} bytes "
            f"which exceeds the maximum configured value of {rules.max_message_bytes}).",
        )
    if crc32c(view[ATTRIBUTES_POSITION:]) != batch.crc:
        raise CorruptMessage(
            f"Record is corrupt (stored crc = {batch.crc}) in topic partition "
            f"{rules.topic_partition}."
        )
    if is_client and len(view) > LOOP_BYTES and _may_be_written(batch):
        raise OffloadRequired(view, rules)
    if is_client:
        _refuse_client_batch(batch, rules)


def _may_be_written(batch: RecordBatch) -> bool:
    return (
        batch.last_offset_delta >= 0
        and batch.record_count == batch.last_offset_delta + 1
        and not batch.is_control
        and (batch.producer_id < 0 or batch.base_sequence >= 0)
    )


def _refuse_client_batch(batch: RecordBatch, rules: ValidationRules) -> NoReturn:
    """Raise the error for header fields that clients may not set."""
    where = f"in topic partition {rules.topic_partition}"
    if batch.last_offset_delta < 0:
        raise invalid(
            f"Batch has an invalid offset range: [{batch.base_offset}, {batch.last_offset}] {where}"
        )
    if batch.record_count <= 0:
        raise invalid(f"Invalid reported count for record batch: {batch.record_count} {where}")
    if batch.record_count != batch.last_offset_delta + 1:
        raise invalid(
            f"Inconsistent batch offset range [{batch.base_offset}, {batch.last_offset}] "
            f"and count of records {batch.record_count} {where}"
        )
    if batch.is_control:
        raise invalid(f"Clients are not allowed to write control records {where}")
    raise invalid(
        f"Invalid sequence number {batch.base_sequence} in record batch with producerId "
        f"{batch.producer_id} {where}"
    )
