"""Deletes topics by name or by id.

Kafka: ReplicationControlManager.deleteTopics, ControllerApis.deleteTopics.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

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
_NEITHER: Final = "Neither topic name nor id were specified."
_BOTH: Final = "You may not specify both topic name and topic id."
_SUPPLIED: Final = "The provided topic name maps to an ID that was already supplied."


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
    found, results = _find_topics(request, topics)
    for topic in found:
        try:
            if record_permits is not None:
                record_permits(len(topic.partitions))
        except KafkaError as error:
            results.append(_refused(topic.name, topic.topic_id, error))
            continue
        results.append(_Result(name=topic.name, topic_id=topic.topic_id))
        records.append(MessageAndVersion(RemoveTopicRecord(topic_id=topic.topic_id), 0))
    return ControllerResult(records, DeleteTopicsResponse(responses=results))


def requested_topics(request: DeleteTopicsRequest) -> Iterator[tuple[str | None, Uuid]]:
    """Yield name and id of each requested topic."""
    for name in request.topic_names:
        yield name, ZERO_UUID
    for topic in request.topics:
        yield topic.name, topic.topic_id


def _find_topics(
    request: DeleteTopicsRequest, topics: Topics
) -> tuple[list[TopicState], list[_Result]]:
    """Return the topics to delete, and the errors of all other entries."""
    names, ids, refused = _count_entries(request)
    found: dict[Uuid, TopicState] = {}
    for topic_id, times in ids.items():
        topic = topics.by_id(topic_id)
        if times > 1:
            refused.append(_refused(None, topic_id, _invalid("Duplicate topic id.")))
        elif topic is None:
            refused.append(_refused(None, topic_id, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)))
        else:
            found[topic_id] = topic
    for name, times in names.items():
        topic = topics.by_name(name)
        if times > 1:
            refused.append(_refused(name, ZERO_UUID, _invalid("Duplicate topic name.")))
        elif topic is None:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            refused.append(_refused(name, ZERO_UUID, error))
        elif topic.topic_id in ids:  # named in both ways: not deleted
            found.pop(topic.topic_id, None)
            refused.append(_refused(name, topic.topic_id, _invalid(_SUPPLIED)))
        else:
            found[topic.topic_id] = topic
    return list(found.values()), refused


def _count_entries(
    request: DeleteTopicsRequest,
) -> tuple[Counter[str], Counter[Uuid], list[_Result]]:
    """Return how often each name and each id is given, and the errors of malformed entries."""
    names: Counter[str] = Counter()
    ids: Counter[Uuid] = Counter()
    refused: list[_Result] = []
    for name, topic_id in requested_topics(request):
        if name is not None and not topic_id:
            names[name] += 1
        elif name is None and topic_id:
            ids[topic_id] += 1
        else:
            text = _NEITHER if name is None else _BOTH
            refused.append(_refused(name, topic_id, _invalid(text)))
    return names, ids, refused


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _refused(name: str | None, topic_id: Uuid, error: KafkaError) -> _Result:
    is_throttled = error.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return _Result(
        name=name,
        topic_id=topic_id,
        error_code=error.code,
        error_message=None if is_throttled else error.message,
    )
