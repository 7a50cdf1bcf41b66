"""Acknowledgements in share fetches and in requests of their own: checks, and their results.

Kafka: KafkaApis.{handleAcknowledgements, validateAcknowledgementBatches}.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.purgatory.pending import Steps
from ottla.replication.share.acknowledging import Acknowledgement
from ottla.replication.share.environment import SharePartitionKey
from ottla.replication.share.session import TopicIdPartition
from ottla.security.acl import Operation, ResourceType
from ottla.server.handlers.share.groups import is_member_id
from ottla.types import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context


def check_member(group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Return group and member of a request; INVALID_REQUEST without one of them."""
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not is_member_id(member_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


def partition_error(ctx: Context, one: TopicIdPartition) -> ErrorCode | None:
    """Return why a client may not use a partition: unknown id, missing right, no such partition."""
    name = ctx.broker.topic_name(one.topic_id)
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not ctx.authorize(Operation.READ, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not ctx.broker.has_partition(name, one.partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def acknowledge_all(
    ctx: Context, group_id: str, member_id: str, request: Any
) -> Pending[dict[TopicIdPartition, KafkaError | None]]:
    """Apply all acknowledgements of a request; the result has an error or None for each."""
    can_renew = ctx.api_version >= 2 and request.is_renew_ack
    results: dict[TopicIdPartition, KafkaError | None] = {}
    answer: Steps[dict[TopicIdPartition, KafkaError | None]] = Steps(lambda: results)

    def note(one: TopicIdPartition, done: Pending[None]) -> None:
        error = done.error
        if error is not None and not isinstance(error, KafkaError):
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        results[one] = error

    for one, batches in _requested(request.topics).items():
        code = partition_error(ctx, one)
        if code is None and not _is_valid(ctx, batches, can_renew=can_renew):
            code = ErrorCode.INVALID_REQUEST
        if code is not None:
            results[one] = KafkaError(code)
            continue
        key = SharePartitionKey(group_id, one.topic_id, one.partition)
        done = ctx.broker.share.acknowledge(key, member_id, batches)
        done.on_done(partial(note, one))
        answer.add(done)
    return answer.begin()


def _requested(topics: Iterable[Any]) -> Mapping[TopicIdPartition, list[Acknowledgement]]:
    return {
        TopicIdPartition(topic.topic_id, part.partition_index): [
            Acknowledgement(one.first_offset, one.last_offset, tuple(one.acknowledge_types))
            for one in part.acknowledgement_batches
        ]
        for topic in topics
        for part in topic.partitions
        if part.acknowledgement_batches
    }


def _is_valid(ctx: Context, batches: list[Acknowledgement], *, can_renew: bool) -> bool:
    """Whether batches are in order, with one type or one for each offset, all known."""
    highest = AcknowledgeType.RENEW if ctx.api_version >= 2 else AcknowledgeType.REJECT
    end = -1
    for one in batches:
        count = one.last_offset - one.first_offset + 1
        if count <= 0 or one.first_offset < end or len(one.types) not in (1, count):
            return False
        if any(not 0 <= kind <= highest for kind in one.types):
            return False
        if AcknowledgeType.RENEW in one.types and not can_renew:
            return False
        end = one.last_offset
    return True
