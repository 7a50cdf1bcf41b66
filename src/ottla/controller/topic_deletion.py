"""Deletes topics by name or by id.

Kafka: ReplicationControlManager.deleteTopics, ControllerApis.deleteTopics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.framing import MessageAndVersion
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.records.metadata import RemoveTopicRecord
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.controller.result import RecordPermits
    from ottla.controller.topics import Topics, TopicState

_Result = DeleteTopicsResponse.DeletableTopicResult


def delete_topics(
    request: DeleteTopicsRequest,
    topics: Topics,
    *,
    enabled: bool,
    record_permits: RecordPermits | None = None,
) -> ControllerResult[DeleteTopicsResponse]:
    """Delete topics; each succeeds or fails on its own. `enabled` is delete.topic.enable."""
    if not enabled:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    records: list[MessageAndVersion] = []
    response = DeleteTopicsResponse(responses=[])
    done: set[Uuid] = set()
    requested = list(requested_topics(request))
    names = [name for name, _ in requested if name is not None]
    ids = [topic_id for name, topic_id in requested if name is None]
    for name, topic_id in _once(requested):
        result = _Result(name=name, topic_id=topic_id)
        try:
            _check(name, topic_id, names, ids)
            topic = _find(topics, name, topic_id)
            if topic.topic_id in done:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            if record_permits is not None:
                record_permits(len(topic.partitions))
            done.add(topic.topic_id)
            result.name, result.topic_id = topic.name, topic.topic_id
            records.append(MessageAndVersion(RemoveTopicRecord(topic_id=topic.topic_id), 0))
        except KafkaError as error:
            result.error_code = error.code
            is_throttled = error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            result.error_message = None if is_throttled else error.message
        response.responses.append(result)
    return ControllerResult(records, response)


def requested_topics(request: DeleteTopicsRequest) -> Iterator[tuple[str | None, Uuid]]:
    """Yield name and id of each requested topic."""
    for name in request.topic_names:
        yield name, ZERO_UUID
    for topic in request.topics:
        yield topic.name, topic.topic_id


def _once(requested: list[tuple[str | None, Uuid]]) -> Iterator[tuple[str | None, Uuid]]:
    """Yield each topic once, but every entry with both or neither of name and id, as Kafka."""
    malformed = [(name is None) != bool(topic_id) for name, topic_id in requested]
    entries = list(zip(requested, malformed, strict=True))
    yield from (entry for entry, is_malformed in entries if is_malformed)
    yield from dict.fromkeys(entry for entry, is_malformed in entries if not is_malformed)


def _check(name: str | None, topic_id: Uuid, names: list[str], ids: list[Uuid]) -> None:
    if name is not None and topic_id:
        raise _refused("You may not specify both topic name and topic id.")
    if name is None and not topic_id:
        raise _refused("Neither topic name nor id were specified.")
    if name is not None and names.count(name) > 1:
        raise _refused("Duplicate topic name.")
    if name is None and ids.count(topic_id) > 1:
        raise _refused("Duplicate topic id.")


def _find(topics: Topics, name: str | None, topic_id: Uuid) -> TopicState:
    if name is not None:
        topic = topics.by_name(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic
    topic = topics.by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return topic


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
