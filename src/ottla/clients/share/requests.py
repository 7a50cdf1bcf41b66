"""The share session with one node, and its ShareFetch and ShareAcknowledge requests.

Kafka: org.apache.kafka.common.requests.{ShareFetchRequest, ShareAcknowledgeRequest}.Builder,
org.apache.kafka.clients.consumer.internals.ShareSessionHandler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.clients.share.in_flight import offset_runs
from ottla.errors import ErrorCode
from ottla.protocol.apis.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.apis.share_fetch import ShareFetchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.clients.settings import ValidatedSettings
    from ottla.clients.share.in_flight import Acknowledgements
    from ottla.types import TopicPartition, Uuid

_MODES = {"batch_optimized": 0, "record_limit": 1}
_FetchTopic = ShareFetchRequest.FetchTopic
_FetchPartition = _FetchTopic.FetchPartition
_AcknowledgeTopic = ShareAcknowledgeRequest.AcknowledgeTopic
_AcknowledgePartition = _AcknowledgeTopic.AcknowledgePartition
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_HIGHEST_EPOCH = (1 << 31) - 1
SESSION_LOST = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


def share_fetch(
    settings: ValidatedSettings,
    member_id: str,
    epoch: int,
    *,
    added: Iterable[tuple[Uuid, int]],
    forgotten: Iterable[tuple[Uuid, int]],
    sent: Sequence[Acknowledgements],
) -> ShareFetchRequest:
    """Return a request that acknowledges, then acquires."""
    batches = _batches(sent, _FetchPartition.AcknowledgementBatch)
    names = [*batches, *(one for one in added if one not in batches)]
    return ShareFetchRequest(
        group_id=settings.group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        max_records=settings.max_poll_records,
        batch_size=settings.max_poll_records,
        share_acquire_mode=_MODES[settings.share_acquire_mode.lower()],
        topics=[
            _FetchTopic(
                topic_id=topic_id,
                partitions=[
                    _FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=batches.get((topic_id, index), []),
                    )
                    for index in indexes
                ],
            )
            for topic_id, indexes in by_topic(names).items()
        ],
        forgotten_topics_data=[
            ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(forgotten).items()
        ],
    )


def share_acknowledge(
    settings: ValidatedSettings, member_id: str, epoch: int, sent: Sequence[Acknowledgements]
) -> ShareAcknowledgeRequest:
    """Return a request that only acknowledges; the final epoch also ends the session."""
    batches = _batches(sent, _AcknowledgePartition.AcknowledgementBatch)
    return ShareAcknowledgeRequest(
        group_id=settings.group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(one.renews for one in sent),
        topics=[
            _AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    _AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=batches[topic_id, index],
                    )
                    for index in indexes
                ],
            )
            for topic_id, indexes in by_topic(batches).items()
        ],
    )


def _batches(sent: Sequence[Acknowledgements], kind: type[Any]) -> dict[tuple[Uuid, int], Any]:
    merged: dict[tuple[Uuid, int], dict[int, Any]] = {}
    for one in sent:
        name = one.key.topic_id, one.key.partition.partition
        merged.setdefault(name, {}).update(one.types)
    return {
        name: [
            kind(
                first_offset=run.first_offset,
                last_offset=run.last_offset,
                acknowledge_types=run.types,
            )
            for run in offset_runs(types)
        ]
        for name, types in merged.items()
    }


class ClientShareSession:
    """The state of one session; epoch 0 begins it."""

    def __init__(self) -> None:
        self.epoch = INITIAL_EPOCH
        self.partitions: dict[TopicPartition, Uuid] = {}

    @property
    def is_new(self) -> bool:
        """Whether the node does not know the session."""
        return self.epoch == INITIAL_EPOCH

    def changes(
        self, requested: dict[TopicPartition, Uuid]
    ) -> tuple[list[tuple[Uuid, int]], list[tuple[Uuid, int]]]:
        """Return the added and the forgotten partitions, and store the requested ones."""
        before, self.partitions = self.partitions, requested
        return _missing(requested, before), _missing(before, requested)

    def answered(self) -> None:
        """Advance the epoch; after the highest one follows 1."""
        self.epoch = 1 if self.epoch == _HIGHEST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """Begin another session with the next request."""
        self.epoch = INITIAL_EPOCH
        self.partitions = {}


def _missing(
    these: dict[TopicPartition, Uuid], others: dict[TopicPartition, Uuid]
) -> list[tuple[Uuid, int]]:
    return [
        (topic_id, one.partition) for one, topic_id in these.items() if others.get(one) != topic_id
    ]


def by_topic(entries: Iterable[tuple[Uuid, int]]) -> dict[Uuid, list[int]]:
    """Return partitions by topic id, in the order of their first entries."""
    found: dict[Uuid, list[int]] = {}
    for topic_id, partition in entries:
        found.setdefault(topic_id, []).append(partition)
    return found
