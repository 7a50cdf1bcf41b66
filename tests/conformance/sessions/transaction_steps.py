"""Steps of transactions: several producers, of which two share an id and fence each other.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey
from tests.conformance.sessions.choices import TOPICS
from tests.conformance.sessions.steps import Records, Ref

if TYPE_CHECKING:
    from tests.conformance.sessions.choices import Choices

SLOTS = (10, 11, 12)
"""Producers by the client that initialises them; the first and the last have the same id."""
NAMES = ("{}-tx0", "{}-tx1")
TRANSACTIONAL_FROM = 5000
"""The first seed whose session has these steps."""
_CLIENTS_TO = 3
"""The last version of AddPartitionsToTxn that clients send."""


def name_of(slot: int) -> str:
    """Return the transactional id of a producer."""
    return NAMES[slot % 2]


def _slot(pick: Choices) -> int:
    return pick.one(10, 10, 11, 12)


def _name(pick: Choices, slot: int) -> str:
    return pick.mostly(name_of(slot), "", "{}-absent", NAMES[1], odds=0.04)


def _producer(pick: Choices, slot: int) -> dict[str, Any]:
    step = pick.mostly(0, 1, -1, odds=0.08)
    other = pick.mostly(slot, *SLOTS, odds=0.05)
    return {
        "producer_id": Ref("producer_id", (other,)),
        "producer_epoch": Ref("producer_epoch", (slot, step)),
    }


def init(pick: Choices, version: int) -> dict[str, Any]:
    """Fence the producer before, or bump the epoch of the same one."""
    slot = _slot(pick)
    fields = {
        "transactional_id": name_of(slot),
        "transaction_timeout_ms": pick.mostly(60_000, 0, -1, 900_001, odds=0.04),
        "slot": slot,
    }
    return fields | (_producer(pick, slot) if version >= 3 and pick.chance(0.2) else {})


def add_partitions(pick: Choices, version: int) -> dict[str, Any]:
    """Add partitions as clients do, or verify them as brokers do."""
    slot = _slot(pick)
    topics = [{"name": name, "partitions": pick.partitions(2)} for name in pick.topics(2)]
    producer = _producer(pick, slot)
    if version <= _CLIENTS_TO:
        return {
            "v3_and_below_transactional_id": _name(pick, slot),
            "v3_and_below_producer_id": producer["producer_id"],
            "v3_and_below_producer_epoch": producer["producer_epoch"],
            "v3_and_below_topics": topics,
        }
    verify = {"transactional_id": _name(pick, slot), "verify_only": pick.chance(0.5)}
    return {"transactions": [verify | producer | {"topics": topics}]}


def produce(pick: Choices, _version: int) -> dict[str, Any]:
    """Send a batch of a transaction."""
    slot = _slot(pick)
    topic, partition = pick.mostly(pick.one(*TOPICS[:2]), "{}-absent", odds=0.03), pick.one(0, 0, 1)
    records = Records(
        topic=topic,
        partition=partition,
        number=pick.number(),
        count=pick.rng.randint(1, 3),
        producer=slot,
        sequence_step=pick.mostly(0, 1, -1, -2, odds=0.08),
        epoch_step=pick.mostly(0, 1, -1, odds=0.06),
        is_transactional=True,
    )
    data = {"index": partition, "records": records}
    return {
        "transactional_id": _name(pick, slot),
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "topic_id": pick.topic_id(topic), "partition_data": [data]}],
    }


def add_offsets(pick: Choices, _version: int) -> dict[str, Any]:
    """Add a group to a transaction."""
    slot = _slot(pick)
    return {"transactional_id": _name(pick, slot), "group_id": pick.group()} | _producer(pick, slot)


def commit_offsets(pick: Choices, version: int) -> dict[str, Any]:
    """Commit offsets in a transaction, as no member or as one."""
    slot, group = _slot(pick), pick.group()
    partition = {
        "partition_index": pick.partition(),
        "committed_offset": pick.rng.randint(0, 30),
        "committed_metadata": "",
    }
    fields = {
        "transactional_id": _name(pick, slot),
        "group_id": group,
        "topics": [{"name": pick.topic(), "partitions": [partition]}],
    }
    if version >= _CLIENTS_TO and pick.chance(0.3):
        fields |= {"member_id": pick.member(group), "generation_id": pick.generation(group)}
    return fields | _producer(pick, slot)


def end(pick: Choices, _version: int) -> dict[str, Any]:
    """Commit or abort."""
    slot = _slot(pick)
    ended = {"transactional_id": _name(pick, slot), "committed": pick.chance(0.6)}
    return ended | _producer(pick, slot) | {"slot": slot}


def describe(pick: Choices, _version: int) -> dict[str, Any]:
    """Describe transactions."""
    return {"transactional_ids": pick.some([*NAMES, "{}-absent"], 2)}


STEPS = (
    (12, ApiKey.INIT_PRODUCER_ID, init),
    (14, ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions),
    (30, ApiKey.PRODUCE, produce),
    (6, ApiKey.ADD_OFFSETS_TO_TXN, add_offsets),
    (10, ApiKey.TXN_OFFSET_COMMIT, commit_offsets),
    (18, ApiKey.END_TXN, end),
    (6, ApiKey.DESCRIBE_TRANSACTIONS, describe),
)
