"""What an exactly-once query has decided: the last batch whose records count, and who wrote them.

The decision is kept in the metadata of the query's committed offsets: parts of a JSON document,
each within offset.metadata.max.bytes, over as many partitions as it takes. A deleted topic takes
its offsets with it, so other topics have copies of all parts.

Kafka: OffsetAndMetadata.metadata; the protocol is this project's own (docs/spark.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.types import TopicPartition

PART_BYTES: Final = 3900
"""Of a broker's default of 4096 bytes of metadata for each offset."""
MAX_COPIES: Final = 2
"""Of a decision, each in another topic: one of a thousand topics would be too much."""
_BATCH, _QUERY, _PART, _PARTS, _PARTICIPANTS = "batch", "query", "part", "of", "tx"
_STATE, _SOURCES = "state", "sources"


class IncompleteDecision(KafkaError):
    """A part of a decision is missing from the group's offsets."""

    def __init__(self, batch_id: int) -> None:
        super().__init__(
            ErrorCode.INVALID_CONFIG,
            f"a part of the decision on batch {batch_id} is missing from the group's offsets: were "
            "they reset or deleted, or was one of the query's topics deleted, with its offsets? "
            "Start with a new checkpoint",
        )


class Participant(NamedTuple):
    """A task's transaction, which is ended once the batch is decided."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    bumps_epoch: bool = True
    """Whether its end gives the producer another epoch (`transaction.version` 2)."""


class BatchDecision(NamedTuple):
    """The last decided batch of a query."""

    query_id: str
    batch_id: int
    participants: tuple[Participant, ...] = ()
    state_digest: int | None = None
    """Of the changes of the state that the batch has made; None for a query without a digest."""
    source_digest: int | None = None
    """Of the offsets at which the batch ends; None for one that an earlier version has decided."""


def encode(
    decision: BatchDecision, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, str]:
    """Return the metadata for each partition; KafkaError when the participants do not fit."""
    places = sorted(partitions)
    head = {_QUERY: decision.query_id, _BATCH: decision.batch_id}
    if decision.state_digest is not None:
        head[_STATE] = f"{decision.state_digest:x}"
    if decision.source_digest is not None:
        head[_SOURCES] = f"{decision.source_digest:x}"
    chunks = _chunks(decision.participants)
    if len(chunks) > len(places):
        raise KafkaError(
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
            f"{len(decision.participants)} tasks have written: their transactions do not fit the "
            f"offsets of {len(places)} partitions; use fewer tasks (coalesce), or "
            "exactlyOnce=false",
        )
    parts = [
        _text({**head, _PART: part, _PARTS: len(chunks), _PARTICIPANTS: chunk})
        for part, chunk in enumerate(chunks)
    ]
    found = dict.fromkeys(places, _text(head))
    for some in [places, *_places_of_copies(places, len(parts))]:
        found.update(zip(some, parts, strict=False))
    return found


def _places_of_copies(
    places: Sequence[TopicPartition], part_count: int
) -> list[list[TopicPartition]]:
    """Return the partitions of some topics after those of the parts, each with room for all."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in places:
        by_topic.setdefault(partition.topic, []).append(partition)
    for partition in places[:part_count]:
        by_topic.pop(partition.topic, None)
    return [some for some in by_topic.values() if len(some) >= part_count][:MAX_COPIES]


def _chunks(participants: Iterable[Participant]) -> list[list[Participant]]:
    chunks: list[list[Participant]] = [[]]
    size = 200  # the rest of the document
    for participant in participants:
        added = len(_text(participant)) + 1
        if size + added > PART_BYTES:
            chunks.append([])
            size = 200
        chunks[-1].append(participant)
        size += added
    return chunks


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def decode(query_id: str, found: Iterable[str | None]) -> BatchDecision | None:
    """Return the last decision in a group's metadata; None where there is none.

    KafkaError for the decision of another query, or one of which a part is missing.
    """
    parts: dict[int, dict[int, list[Participant]]] = {}
    counts: dict[int, int] = {}
    digests: dict[int, int] = {}
    sources: dict[int, int] = {}
    for text in found:
        document = _document(text)
        if document is None:
            continue
        if document[_QUERY] != query_id:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "the group's offsets were committed by a query with another checkpoint; "
                "give kafka.group.id (in ottla.streams the application_id) another name, or delete "
                "the group's offsets",
            )
        batch_id = document[_BATCH]
        counts.setdefault(batch_id, 0)
        if _STATE in document:
            digests[batch_id] = int(document[_STATE], 16)
        if _SOURCES in document:
            sources[batch_id] = int(document[_SOURCES], 16)
        if _PART in document:
            counts[batch_id] = document[_PARTS]
            chunk = [Participant(*one) for one in document[_PARTICIPANTS]]
            parts.setdefault(batch_id, {})[document[_PART]] = chunk
    if not counts:
        return None
    last = max(counts)
    held = parts.get(last, {})
    if not counts[last] or sorted(held) != list(range(counts[last])):
        raise IncompleteDecision(last)
    participants = tuple(participant for part in sorted(held) for participant in held[part])
    return BatchDecision(query_id, last, participants, digests.get(last), sources.get(last))


def is_decision(metadata: str) -> bool:
    """Whether an offset's metadata are part of a decision."""
    return _document(metadata) is not None


def _document(text: str | None) -> dict[str, Any] | None:
    """Return a part that this module wrote; None for other metadata."""
    try:
        document = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get(_BATCH), int):
        return None
    return document if isinstance(document.get(_QUERY), str) else None
