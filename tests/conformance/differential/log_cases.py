"""Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers: what is in a log.

Kafka: KafkaApis.handleFetchRequest and its neighbours, FetchSession, ReplicaManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.delete_records import DeleteRecordsRequest
from ottla.protocol.apis.describe_producers import DescribeProducersRequest
from ottla.protocol.apis.fetch import FetchRequest
from ottla.protocol.apis.list_offsets import ListOffsetsRequest
from ottla.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.types import METADATA_TOPIC_ID, Uuid
from tests.conformance.differential.case import case
from tests.conformance.differential.side import BASE_TIME_MS, batch

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
OTHER_ID = Uuid(b"no such topic id")
READ = "read"
MISSING = (E_.UNKNOWN_TOPIC_OR_PARTITION, E_.UNKNOWN_TOPIC_ID)

# ---------------------------------------------------------------- fetch


def _requested(at: Side, topic: str, *partitions: dict[str, Any]) -> dict[str, Any]:
    known = at.filled(topic) if topic == READ else topic
    usual = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        "topic": known,
        "topic_id": at.topic_id(known) or OTHER_ID,
        "partitions": [usual | one for one in partitions or ({},)],
    }


def fetched(topic: str = READ, request: dict[str, Any] | None = None, **partition: Any) -> Fields:
    """Return fields that fetch one partition; `request` is what the whole request has."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        usual = {"max_wait_ms": 0, "min_bytes": 0, "replica_state": {}}
        return usual | {"topics": [_requested(at, topic, partition)]} | (request or {})

    return fields


def _second_too_large(at: Side, version: int) -> dict[str, Any]:
    """Fetch two topics of which the second one's first batch is larger than what it may send."""
    second = _requested(at, at.filled("read-too"), {"partition_max_bytes": 1})
    topics = [_requested(at, READ), second]
    return {"max_wait_ms": 0, "isolation_level": 1, "replica_state": {}, "topics": topics}


def _next_to_quiet(at: Side, version: int) -> dict[str, Any]:
    topics = [_requested(at, READ, {"fetch_offset": 6}, {"partition": 9})]
    return {"max_wait_ms": 20, "min_bytes": 1, "replica_state": {}, "topics": topics}


def _fetched_twice(at: Side, version: int) -> dict[str, Any]:
    topics = [_requested(at, READ, {"fetch_offset": 3}, {"fetch_offset": 0})]
    return {"max_wait_ms": 0, "min_bytes": 0, "replica_state": {}, "topics": topics}


def _session(at: Side, version: int, **request: Any) -> dict[str, Any]:
    """Begin a fetch session with one partition, and return the next request in it."""
    begin = {"max_wait_ms": 0, "session_id": 0, "session_epoch": 0}
    requested = [_requested(at, READ)]
    answer = at.ask(ApiKey.FETCH, version, topics=requested, **begin)
    assert answer.session_id > 0, answer
    own = {"session_id": answer.session_id, "session_epoch": 1, "topics": []}
    return {"max_wait_ms": 0, **own, **request}


def _forgets(at: Side, version: int) -> dict[str, Any]:
    name = {"topic": READ, "topic_id": at.topic_id(READ), "partitions": [0]}
    return _session(at, version, forgotten_topics_data=[name])


def _adds(at: Side, version: int) -> dict[str, Any]:
    at.filled("read-too")
    return _session(at, version, topics=[_requested(at, "read-too")])


def _two_topics(at: Side, version: int) -> dict[str, Any]:
    topics = [_requested(at, READ), _requested(at, "absent"), _requested(at, at.filled("read-too"))]
    return {"max_wait_ms": 0, "topics": topics}


def _after_gap(at: Side, version: int) -> dict[str, Any]:
    """Fetch below the start of a log whose first batches were deleted."""
    at.filled("beheaded")
    _behead(at, "beheaded", 4)
    return {"max_wait_ms": 0, "topics": [_requested(at, "beheaded")]}


def _behead(at: Side, topic: str, offset: int) -> None:
    partitions = [{"partition_index": 0, "offset": offset}]
    answer = at.ask(
        ApiKey.DELETE_RECORDS,
        topics=[{"name": topic, "partitions": partitions}],
        timeout_ms=5000,
    )
    assert answer.topics[0].partitions[0].error_code == 0, answer


def _make(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(FetchRequest, name, fields, errors=errors, **options)


SESSIONS = (7, 0x7FFF)


def _trades(at: Side, version: int) -> dict[str, Any]:
    known = _requested(at, READ)
    forgotten = {"topic": READ, "topic_id": known["topic_id"], "partitions": [0]}
    return _session(at, version, topics=[known], forgotten_topics_data=[forgotten])


FETCH = [
    _make("valid", fetched()),
    _make("from the middle of a batch", fetched(fetch_offset=3)),
    _make("at the end", fetched(fetch_offset=6)),
    _make("read committed", fetched(request={"isolation_level": 1})),
    _make(
        "isolation 7",
        fetched(request={"isolation_level": 7}),
        E_.UNKNOWN_SERVER_ERROR,
        versions=(12, 12),
    ),
    _make("waits in vain", fetched(fetch_offset=6, request={"max_wait_ms": 20, "min_bytes": 1})),
    _make("one byte at most", fetched(partition_max_bytes=1)),
    _make("one byte at most in all", fetched(request={"max_bytes": 1})),
    _make("zero bytes", fetched(partition_max_bytes=0)),
    _make("negative bytes", fetched(partition_max_bytes=-1), E_.UNKNOWN_SERVER_ERROR),
    _make("negative bytes in all", fetched(request={"max_bytes": -1}), E_.UNKNOWN_SERVER_ERROR),
    _make("read committed, the second does not fit", _second_too_large),
    _make("beyond the end", fetched(fetch_offset=7), E_.OFFSET_OUT_OF_RANGE),
    _make("negative offset", fetched(fetch_offset=-1), E_.OFFSET_OUT_OF_RANGE),
    _make("below the start", _after_gap, E_.OFFSET_OUT_OF_RANGE),
    _make("unknown topic", fetched("absent"), *MISSING),
    _make("unknown partition", fetched(partition=9), MISSING[0]),
    _make("several", _two_topics, *MISSING),
    _make(
        "leader epoch to come",
        fetched(current_leader_epoch=9),
        E_.UNKNOWN_LEADER_EPOCH,
        versions=(9, 99),
    ),
    _make("leader epoch -2", fetched(current_leader_epoch=-2), versions=(9, 99)),
    _make("this leader epoch", fetched(current_leader_epoch=0), versions=(9, 99)),
    _make("last fetched epoch", fetched(fetch_offset=2, last_fetched_epoch=0), versions=(12, 99)),
    _make(
        "another last fetched epoch",
        fetched(fetch_offset=2, last_fetched_epoch=5),
        E_.OFFSET_OUT_OF_RANGE,
        versions=(12, 99),
    ),
    _make("unknown next to quiet", _next_to_quiet, *MISSING[:1]),
    _make("the same partition twice", _fetched_twice),
    _make("no topics", fetched(request={"topics": []})),
    _make("with a rack", fetched(request={"rack_id": "here"})),
    _make("of another cluster", fetched(request={"cluster_id": "other"}), versions=(12, 99)),
    _make(
        "new session",
        fetched(request={"session_id": 0, "session_epoch": 0}),
        versions=SESSIONS,
    ),
    _make("session, nothing new", _session, versions=SESSIONS),
    _make("session forgets", _forgets, versions=SESSIONS),
    _make("session adds", _adds, versions=SESSIONS),
    _make("session trades its only partition for itself", _trades, versions=SESSIONS),
    _make("session ends", lambda at, v: _session(at, v, session_epoch=-1), versions=SESSIONS),
    _make(
        "session epoch wrong",
        lambda at, v: _session(at, v, session_epoch=5),
        E_.INVALID_FETCH_SESSION_EPOCH,
        versions=SESSIONS,
    ),
    _make(
        "session unknown",
        fetched(request={"session_id": 1, "session_epoch": 1, "topics": []}),
        E_.FETCH_SESSION_ID_NOT_FOUND,
        versions=SESSIONS,
    ),
]

# On the controller's listener: the metadata log, by its name or its fixed id.
METADATA_LOG = {"topic": "__cluster_metadata", "topic_id": METADATA_TOPIC_ID}


def _of_metadata(topic: dict[str, Any] = METADATA_LOG, partition: int = 0) -> Fields:
    requested = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1}
    return lambda at, v: {"max_wait_ms": 0, "topics": [{**topic, "partitions": [requested]}]}


FETCH += [
    _make("valid, metadata", _of_metadata(), E_.INVALID_REQUEST, listener="controller"),
    _make(
        "unknown partition",
        _of_metadata(partition=1),
        E_.INVALID_REQUEST,
        listener="controller",
    ),
    _make(
        "unknown topic",
        _of_metadata({"topic": "absent", "topic_id": OTHER_ID}),
        E_.INVALID_REQUEST,
        listener="controller",
    ),
]

# ---------------------------------------------------------------- offsets


def _listed(topic: str = READ, *, isolation: int = 0, **partition: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.filled(READ)
        one = {"partition_index": 0, "timestamp": -1} | partition
        topics = [{"name": topic, "partitions": [one]}]
        return {"replica_id": -1, "isolation_level": isolation, "topics": topics}

    return fields


def _listed_twice(at: Side, version: int) -> dict[str, Any]:
    at.filled(READ)
    one = {"partition_index": 0, "timestamp": -1}
    return {"replica_id": -1, "topics": [{"name": READ, "partitions": [one, one]}]}


def _listed_none(at: Side, version: int) -> dict[str, Any]:
    topics: list[dict[str, Any]] = [{"name": "absent", "partitions": []}]
    return {"replica_id": -1, "topics": topics}


def _list_beheaded(at: Side, version: int) -> dict[str, Any]:
    at.filled("beheaded")
    at.once("behead", lambda: _behead(at, "beheaded", 4))
    requested = [{"partition_index": 0, "timestamp": stamp} for stamp in (-2,)]
    return {"replica_id": -1, "topics": [{"name": "beheaded", "partitions": requested}]}


def _offsets(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(ListOffsetsRequest, name, fields, errors=errors, **options)


OFFSETS = [
    _offsets("valid, latest", _listed()),
    _offsets("earliest", _listed(timestamp=-2)),
    _offsets("earliest after a deletion", _list_beheaded),
    *(
        _offsets(f"special {stamp}", _listed(timestamp=stamp), E_.UNSUPPORTED_VERSION)
        for stamp in (-3, -4, -5, -6)
    ),
    _offsets("special -7", _listed(timestamp=-7), E_.UNSUPPORTED_VERSION),
    _offsets("special -99", _listed(timestamp=-99), E_.UNSUPPORTED_VERSION),
    _offsets("by time", _listed(timestamp=BASE_TIME_MS + 1)),
    _offsets("by time 0", _listed(timestamp=0)),
    _offsets("by time between", _listed(timestamp=BASE_TIME_MS + 500)),
    _offsets("by time to come", _listed(timestamp=BASE_TIME_MS + 10**9)),
    _offsets("read committed", _listed(isolation=1), versions=(2, 99)),
    _offsets("as a replica", lambda at, v: _listed()(at, v) | {"replica_id": 1}),
    _offsets("as the debugging replica", lambda at, v: _listed()(at, v) | {"replica_id": -2}),
    _offsets(
        "as the debugging replica, leader epoch to come",
        lambda at, v: _listed(current_leader_epoch=9)(at, v) | {"replica_id": -2},
        E_.UNKNOWN_LEADER_EPOCH,
        versions=(4, 99),
    ),
    _offsets("unknown topic", _listed("absent"), MISSING[0]),
    _offsets("unknown partition", _listed(partition_index=9), MISSING[0]),
    _offsets("twice", _listed_twice, E_.INVALID_REQUEST),
    _offsets(
        "leader epoch to come",
        _listed(current_leader_epoch=9),
        E_.UNKNOWN_LEADER_EPOCH,
        versions=(4, 99),
    ),
    _offsets(
        "leader epoch -2",
        _listed(current_leader_epoch=-2),
        E_.FENCED_LEADER_EPOCH,
        versions=(4, 99),
    ),
    _offsets("topic without partitions", _listed_none),
    _offsets("no topics", lambda at, v: {"replica_id": -1, "topics": []}),
]


def _epochs(topic: str = READ, **partition: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.filled(READ)
        one = {"partition": 0, "leader_epoch": 0} | partition
        return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [one]}]}

    return fields


def _epoch(name: str, fields: Fields, *errors: int) -> Case:
    return case(OffsetForLeaderEpochRequest, name, fields, errors=errors)


EPOCHS = [
    _epoch("valid", _epochs()),
    _epoch("epoch to come", _epochs(leader_epoch=7)),
    _epoch("no epoch", _epochs(leader_epoch=-1)),
    _epoch("current epoch", _epochs(current_leader_epoch=0)),
    _epoch("current epoch to come", _epochs(current_leader_epoch=5), E_.UNKNOWN_LEADER_EPOCH),
    _epoch("current epoch -2", _epochs(current_leader_epoch=-2), E_.FENCED_LEADER_EPOCH),
    _epoch("unknown topic", _epochs("absent"), MISSING[0]),
    _epoch("unknown partition", _epochs(partition=9), MISSING[0]),
]

# ---------------------------------------------------------------- delete records, producers


def _deleted(offset: int, topic: str = "trimmed", partition: int = 0, **configs: str) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        if topic != "absent":
            at.filled(topic, **configs)
        one = {"partition_index": partition, "offset": offset}
        return {"topics": [{"name": topic, "partitions": [one]}], "timeout_ms": 5000}

    return fields


def _deleted_twice(at: Side, version: int) -> dict[str, Any]:
    at.filled("trimmed-twice")
    partitions = [{"partition_index": 0, "offset": offset} for offset in (4, 2)]
    return {"topics": [{"name": "trimmed-twice", "partitions": partitions}], "timeout_ms": 5000}


def _delete_nothing(at: Side, version: int) -> dict[str, Any]:
    partitions: list[dict[str, Any]] = []
    return {"topics": [{"name": "absent", "partitions": partitions}], "timeout_ms": 5000}


def _delete_internal(partition: int) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        partitions = [{"partition_index": partition, "offset": -1}]
        topics = [{"name": "__consumer_offsets", "partitions": partitions}]
        return {"topics": topics, "timeout_ms": 5000}

    return fields


def _start(topic: str) -> Any:
    return lambda at, version: at.end_offset(topic, timestamp=-2)


def _delete(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(DeleteRecordsRequest, name, fields, errors=errors, **options)


DELETIONS = [
    _delete("valid", _deleted(1), after=_start("trimmed")),
    _delete("below the start", _deleted(0)),
    _delete("to the end", _deleted(-1, "emptied"), after=_start("emptied")),
    _delete("beyond the end", _deleted(99), E_.OFFSET_OUT_OF_RANGE),
    _delete("negative", _deleted(-5), E_.OFFSET_OUT_OF_RANGE),
    _delete("unknown topic", _deleted(0, "absent"), MISSING[0]),
    _delete("unknown partition", _deleted(0, partition=9), MISSING[0]),
    _delete(
        "compacted", _deleted(1, "compacted-only", cleanup_policy="compact"), E_.POLICY_VIOLATION
    ),
    _delete("compacted and deleted", _deleted(1, "both", cleanup_policy="compact,delete")),
    _delete("neither compacted nor deleted", _deleted(1, "kept-forever", cleanup_policy="")),
    _delete("internal topic", _delete_internal(0), E_.INVALID_TOPIC_EXCEPTION),
    _delete("internal topic, unknown partition", _delete_internal(999), MISSING[0]),
    _delete("twice", _deleted_twice, after=_start("trimmed-twice")),
    _delete("topic without partitions", _delete_nothing),
    _delete("no topics", lambda at, v: {"topics": [], "timeout_ms": 1}),
]


def _producers(topic: str = "producers", partition: int = 0) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        def begin() -> None:
            at.topic("producers")
            for number in (1, 2):
                own = {"producer_id": 900_000 + number, "producer_epoch": number}
                assert at.produce("producers", batch(number, base_sequence=0, **own)) == 0

        at.once("producers", begin)
        return {"topics": [{"name": topic, "partition_indexes": [partition]}]}

    return fields


def _describe(name: str, fields: Fields, *errors: int) -> Case:
    return case(DescribeProducersRequest, name, fields, errors=errors)


PRODUCERS = [
    _describe("valid", _producers()),
    _describe("unknown topic", _producers("absent"), MISSING[0]),
    _describe("unknown partition", _producers(partition=9), MISSING[0]),
    _describe("invalid name", _producers("a b"), E_.INVALID_TOPIC_EXCEPTION),
    _describe("no topics", lambda at, v: {"topics": []}),
]
CASES: list[Case] = [*FETCH, *OFFSETS, *EPOCHS, *DELETIONS, *PRODUCERS]
