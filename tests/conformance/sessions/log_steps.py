"""Steps of logs: produce, fetch, list offsets, delete records, producers.

Kafka: none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey
from tests.conformance.differential.side import BASE_TIME_MS
from tests.conformance.sessions.batches import FLAWS, TRANSACTIONAL
from tests.conformance.sessions.choices import INT32, INT64, ODD_TOPICS, TOPICS
from tests.conformance.sessions.steps import Ref

if TYPE_CHECKING:
    from tests.conformance.sessions.choices import Choices

_FETCH_WAIT_MS = 800


def init_producer_id(pick: Choices, _version: int) -> dict[str, Any]:
    """Ask for a producer id."""
    slot = pick.one(0, 1, 2)
    known = pick.chance(0.1)
    return {
        "transactional_id": pick.mostly(None, "", odds=0.04),
        "transaction_timeout_ms": pick.int32(60_000),
        "producer_id": Ref("producer_id", (slot,)) if known else -1,
        "producer_epoch": Ref("producer_epoch", (slot,))
        if known
        else pick.mostly(-1, 0, 2**15 - 1, odds=0.04),
    }


def produce(pick: Choices, _version: int) -> dict[str, Any]:
    """Produce to a few partitions."""
    topics = []
    # Ottla has no transactions: their batches only come without an id, and are refused
    transactional_id = pick.mostly(None, "tx", "", odds=0.02)
    flaws = FLAWS if transactional_id is None else [one for one in FLAWS if one != TRANSACTIONAL]
    names = [(name, pick.partitions(2)) for name in pick.topics(2)]
    sent = Counter((name, index) for name, indexes in names for index in indexes)
    for name, indexes in names:
        # Of two for one partition Kafka appends the last sound one, and answers what refuses others
        partitions = [
            {
                "index": index,
                "records": pick.records(name, index, flaws if sent[name, index] == 1 else ()),
            }
            for index in indexes
        ]
        topics.append({"name": name, "topic_id": pick.topic_id(name), "partition_data": partitions})
    return {
        "transactional_id": transactional_id,
        "acks": pick.mostly(pick.one(-1, -1, 1), 0, 2, -2, odds=0.06),
        "timeout_ms": pick.int32(5000),
        "topic_data": topics,
    }


def _fetch_topic(pick: Choices, name: str) -> dict[str, Any]:
    return {
        "topic": name,
        "topic_id": pick.topic_id(name, may_be_zero=False),  # Kafka's handler fails on zero
        "partitions": [
            {
                "partition": index,
                "current_leader_epoch": pick.epoch(),
                "fetch_offset": pick.offset(),
                "last_fetched_epoch": pick.mostly(-1, 0, 1, -2, odds=0.05),
                "log_start_offset": pick.mostly(-1, 5, *INT64),
                "partition_max_bytes": pick.mostly(1 << 20, 0, 1, 100, 300, *INT32, odds=0.2),
            }
            for index in pick.partitions()
        ],
    }


def fetch(pick: Choices, version: int) -> dict[str, Any]:
    """Fetch with or without a session, at once or waiting."""
    waits = pick.chance(0.08)
    fields: dict[str, Any] = {
        "replica_state": {},
        "max_wait_ms": _FETCH_WAIT_MS if waits else pick.mostly(0, -1, -(2**31)),
        "min_bytes": pick.one(1, 10_000) if waits else pick.mostly(pick.one(0, 1), *INT32),
        "max_bytes": pick.mostly(1 << 20, 0, 1, 200, *INT32, odds=0.15),
        "isolation_level": pick.one(0, 1),
        "rack_id": pick.mostly("", "r"),
        "topics": [_fetch_topic(pick, name) for name in pick.topics()],
    }
    if version >= 7 and pick.chance(0.6):
        fields |= _in_session(pick, fields["topics"])
    return fields


def _in_session(pick: Choices, topics: list[Any]) -> dict[str, Any]:
    slot = pick.rng.randrange(10)
    kind = pick.rng.random()
    if kind < 0.35:
        return {"session_id": 0, "session_epoch": 0}
    known = {"session_id": pick.mostly(Ref("fetch_session", (slot,)), 0, -1, 5, odds=0.03)}
    if kind < 0.42:
        return known | {"session_epoch": pick.one(-1, 0, 0, *INT32)}
    forgotten = [
        {"topic": one["topic"], "topic_id": one["topic_id"], "partitions": pick.partitions(2)}
        for one in topics
    ]
    return known | {
        "session_epoch": Ref("fetch_epoch", (slot, pick.mostly(0, 1, -2, odds=0.06))),
        "topics": [] if pick.chance(0.5) else topics,
        "forgotten_topics_data": forgotten if pick.chance(0.2) else [],
    }


def list_offsets(pick: Choices, _version: int) -> dict[str, Any]:
    """List offsets by time and by special timestamps."""
    times = (-1, -2, -3, -4, BASE_TIME_MS, BASE_TIME_MS + pick.rng.randrange(90_000))
    return {
        "replica_id": pick.mostly(-1, -2, 1),
        "isolation_level": pick.one(0, 1),
        "timeout_ms": pick.int32(1000),
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": index,
                        "current_leader_epoch": pick.epoch(),
                        "timestamp": pick.mostly(pick.one(*times), -5, -6, -7, *INT64),
                    }
                    for index in pick.partitions()
                ],
            }
            for name in pick.topics(2)
        ],
    }


def delete_records(pick: Choices, _version: int) -> dict[str, Any]:
    """Move log start offsets."""
    return {
        "timeout_ms": pick.int32(5000),
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": n,
                        "offset": pick.one(-1, pick.rng.randint(0, 12), pick.offset()),
                    }
                    for n in pick.partitions(2)
                ],
            }
            for name in pick.topics(2)
        ],
    }


def leader_epochs(pick: Choices, _version: int) -> dict[str, Any]:
    """Ask where leader epochs end."""
    return {
        "replica_id": pick.mostly(-1, -2),
        "topics": [
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": index,
                        "current_leader_epoch": pick.epoch(),
                        "leader_epoch": pick.mostly(pick.one(0, 0, -1, 1, 9), *INT32),
                    }
                    for index in pick.partitions()
                ],
            }
            for name in pick.topics(2)
        ],
    }


def describe_producers(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe the producers of partitions."""
    return {
        "topics": [
            {"name": name, "partition_indexes": pick.partitions(2)} for name in pick.topics(2)
        ]
    }


def describe_log_dirs(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe where partitions lie."""
    names = pick.some([*TOPICS, *ODD_TOPICS[:1]], 2)
    topics = [{"topic": name, "partitions": pick.partitions(2)} for name in names]
    return {"topics": topics}


STEPS = (
    (2, ApiKey.INIT_PRODUCER_ID, init_producer_id),
    (14, ApiKey.PRODUCE, produce),
    (12, ApiKey.FETCH, fetch),
    (5, ApiKey.LIST_OFFSETS, list_offsets),
    (2, ApiKey.DELETE_RECORDS, delete_records),
    (1, ApiKey.OFFSET_FOR_LEADER_EPOCH, leader_epochs),
    (2, ApiKey.DESCRIBE_PRODUCERS, describe_producers),
    (1, ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs),
)
