"""Transactions: ids, partitions, offsets, ends, markers, and what describes them.

Kafka: TransactionCoordinator, KafkaApis.handleTxnOffsetCommitRequest. What a series of requests
does is in tests/coordinator/transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.apis.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.apis.end_txn import EndTxnRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.list_transactions import ListTransactionsRequest
from ottla.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from tests.conformance.differential.case import case

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
TRANSACTION = 1
TOPIC = "transacted"
STABLE_PRODUCER_IDS = 5  # version 6 is not stable (KIP-939)
LAST_CLIENT_VERSION = 3


def _served(at: Side) -> None:
    """Wait until all transactional ids have a coordinator."""

    def served() -> bool:
        at.ask(ApiKey.FIND_COORDINATOR, 3, key="any", key_type=TRANSACTION)
        ids = [f"id-{number}" for number in range(40)]
        answer = at.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids)
        wanted = E_.TRANSACTIONAL_ID_NOT_FOUND
        if any(one.error_code != wanted for one in answer.transaction_states):
            return False
        first = {"transactional_id": "first", "transaction_timeout_ms": 60_000}
        given = at.ask(ApiKey.INIT_PRODUCER_ID, 4, **first)
        return bool(given.error_code == 0)  # it has producer ids, too

    at.topic(TOPIC, 2)
    at.coordinator()
    at.once("transactions", lambda: at.until(served, "transactions are served"))


def _producer(at: Side, name: str) -> dict[str, Any]:
    """Return the fields of a transactional producer, which is initialised on the first call."""

    def initialise() -> tuple[int, int]:
        _served(at)
        answer = at.ask(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=60_000
        )
        assert answer.error_code == 0, (at.name, answer)
        return answer.producer_id, answer.producer_epoch

    producer_id, epoch = at.once(f"transactional {name}", initialise)
    return {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}


def _opened(at: Side, name: str) -> dict[str, Any]:
    """Return a producer in whose transaction is one partition."""
    producer = _producer(at, name)
    topics = [{"name": TOPIC, "partitions": [0]}]
    fields = {f"v3_and_below_{key}": value for key, value in producer.items()}
    at.once(
        f"open {name}",
        lambda: at.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_topics=topics, **fields),
    )
    return producer


def _as(name: str, *, opened: bool = False, **changes: Any) -> Fields:
    """Return the fields of a producer of its own for each version, less the changes."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        producer = (_opened if opened else _producer)(at, f"{name}-{version}")
        return producer | changes

    return fields


# ---------------------------------------------------------------- ids


def _init(name: str, fields: Fields, *errors: int, lowest: int = 0) -> Case:
    versions = (lowest, STABLE_PRODUCER_IDS)
    return case(InitProducerIdRequest, name, fields, errors=errors, versions=versions)


def _initialising(**options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        _served(at)
        return {"transactional_id": at.label, "transaction_timeout_ms": 60_000} | options

    return fields


def _next_epoch(**changes: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        return _producer(at, at.label) | {"transaction_timeout_ms": 60_000} | changes

    return fields


def _finding(at: Side, version: int) -> dict[str, Any]:
    _served(at)
    return {"key": "x", "key_type": TRANSACTION, "coordinator_keys": ["x"]}


INITS = [
    _init("transactional", _initialising()),
    _init("transactional, next epoch", _next_epoch(), lowest=3),
    _init(
        "transactional, unknown producer",
        _next_epoch(producer_id=12345),
        E_.PRODUCER_FENCED,
        E_.INVALID_PRODUCER_EPOCH,
        lowest=3,
    ),
    _init(
        "transactional, unknown epoch",
        _next_epoch(producer_epoch=9),
        E_.PRODUCER_FENCED,
        E_.INVALID_PRODUCER_EPOCH,
        lowest=3,
    ),
    _init(
        "transactional, no timeout",
        _initialising(transaction_timeout_ms=0),
        E_.INVALID_TRANSACTION_TIMEOUT,
    ),
    _init(
        "transactional, long timeout",
        _initialising(transaction_timeout_ms=900_001),
        E_.INVALID_TRANSACTION_TIMEOUT,
    ),
    case(
        FindCoordinatorRequest,
        "valid, transactional",
        _finding,
        versions=(1, 99),
    ),
]

# ---------------------------------------------------------------- partitions


def _adding(*partitions: tuple[str, list[int]], **changes: Any) -> Fields:
    """Return the fields of a client, and from version 4 on of a broker."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        producer = _producer(at, f"{at.label}-{version}") | changes
        topics = [{"name": name, "partitions": indexes} for name, indexes in partitions]
        verify = {"verify_only": producer.pop("verify_only", False)}
        old = {f"v3_and_below_{key}": value for key, value in producer.items()}
        transactions = [{**producer, **verify, "topics": topics}]
        return {**old, "v3_and_below_topics": topics, "transactions": transactions}

    return fields


def _add(name: str, fields: Fields, *errors: int, lowest: int = 0) -> Case:
    return case(AddPartitionsToTxnRequest, name, fields, errors=errors, versions=(lowest, 99))


HERE = (TOPIC, [0, 1])
ADDS = [
    _add("valid", _adding(HERE)),
    _add(
        "absent topic",
        _adding(HERE, ("absent", [0])),
        E_.UNKNOWN_TOPIC_OR_PARTITION,
        E_.OPERATION_NOT_ATTEMPTED,
    ),
    _add(
        "absent partition",
        _adding((TOPIC, [0, 9])),
        E_.UNKNOWN_TOPIC_OR_PARTITION,
        E_.OPERATION_NOT_ATTEMPTED,
    ),
    _add("unknown producer", _adding(HERE, producer_id=54321), E_.INVALID_PRODUCER_ID_MAPPING),
    _add(
        "other epoch",
        _adding(HERE, producer_epoch=7),
        E_.PRODUCER_FENCED,
        E_.INVALID_PRODUCER_EPOCH,
    ),
    _add("unknown id", _adding(HERE, transactional_id="unknown"), E_.INVALID_PRODUCER_ID_MAPPING),
    _add("empty id", _adding(HERE, transactional_id=""), E_.INVALID_REQUEST),
    _add("no partitions", _adding()),
    _add(
        "verified, not added", _adding(HERE, verify_only=True), E_.TRANSACTION_ABORTABLE, lowest=4
    ),
    _add(
        "verified, unknown id",
        _adding(HERE, verify_only=True, transactional_id="unknown"),
        E_.INVALID_PRODUCER_ID_MAPPING,
        lowest=4,
    ),
]

# ---------------------------------------------------------------- offsets


def _offsets(name: str, fields: Fields, *errors: int) -> Case:
    return case(AddOffsetsToTxnRequest, name, fields, errors=errors)


def _for_group(group: str = "transacting", **changes: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        return _producer(at, f"{at.label}-{version}") | {"group_id": group} | changes

    return fields


def _committing(topic: str = TOPIC, partition: int = 0, **changes: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        _served(at)
        producer = _producer(at, f"{at.label}-{version}")
        group = changes.get("group_id", "transacting")
        at.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **producer, group_id=group)
        one = {
            "partition_index": partition,
            "committed_offset": 5,
            "committed_metadata": changes.get("metadata", "note"),
        }
        usual = {**producer, "group_id": group, "topics": [{"name": topic, "partitions": [one]}]}
        return usual | {key: value for key, value in changes.items() if key != "metadata"}

    return fields


def _commit(name: str, fields: Fields, *errors: int, lowest: int = 0) -> Case:
    return case(TxnOffsetCommitRequest, name, fields, errors=errors, versions=(lowest, 99))


OFFSETS = [
    _offsets("valid", _for_group()),
    _offsets("empty id", _for_group(transactional_id=""), E_.INVALID_REQUEST),
    _offsets("unknown id", _for_group(transactional_id="unknown"), E_.INVALID_PRODUCER_ID_MAPPING),
    _offsets("unknown producer", _for_group(producer_id=54321), E_.INVALID_PRODUCER_ID_MAPPING),
    _offsets(
        "other epoch", _for_group(producer_epoch=3), E_.PRODUCER_FENCED, E_.INVALID_PRODUCER_EPOCH
    ),
    _commit("valid", _committing()),
    _commit("null metadata", _committing(metadata=None)),
    _commit("long metadata", _committing(metadata="x" * 5000), E_.OFFSET_METADATA_TOO_LARGE),
    _commit("absent topic", _committing("absent"), E_.UNKNOWN_TOPIC_OR_PARTITION),
    _commit("absent partition", _committing(partition=9), E_.UNKNOWN_TOPIC_OR_PARTITION),
    _commit(
        "unknown member",
        _committing(member_id="unknown", generation_id=1),
        E_.UNKNOWN_MEMBER_ID,
        lowest=3,
    ),
    _commit(
        "generation without member", _committing(generation_id=3), E_.UNKNOWN_MEMBER_ID, lowest=3
    ),
    _commit("other epoch", _committing(producer_epoch=5), E_.INVALID_PRODUCER_EPOCH),
    _commit("empty group", _committing(group_id=""), E_.INVALID_GROUP_ID),
]

# ---------------------------------------------------------------- ends and markers


def _end(name: str, fields: Fields, *errors: int) -> Case:
    return case(EndTxnRequest, name, fields, errors=errors)


def _marking(*partitions: tuple[str, list[int]], **changes: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        producer = _producer(at, f"{at.label}-{version}")
        topics = [{"name": name, "partition_indexes": indexes} for name, indexes in partitions]
        marker = {
            "producer_id": producer["producer_id"],
            "producer_epoch": producer["producer_epoch"],
            "transaction_result": False,
            "topics": topics,
            "coordinator_epoch": 0,
        }
        return {"markers": [marker | changes]}

    return fields


def _mark(name: str, fields: Fields, *errors: int, lowest: int = 0) -> Case:
    return case(WriteTxnMarkersRequest, name, fields, errors=errors, versions=(lowest, 99))


ENDS = [
    _end("valid, commit", _as("committed", opened=True, committed=True)),
    _end("valid, abort", _as("aborted", opened=True, committed=False)),
    _end("nothing to commit", _as("nothing", committed=True), E_.INVALID_TXN_STATE),
    _end("nothing to abort", _as("no-abort", committed=False), E_.INVALID_TXN_STATE),
    _end("empty id", _as("empty", transactional_id="", committed=True), E_.INVALID_REQUEST),
    _end(
        "unknown id",
        _as("known", transactional_id="unknown", committed=True),
        E_.INVALID_PRODUCER_ID_MAPPING,
    ),
    _end(
        "other producer",
        _as("producer", producer_id=777, committed=True),
        E_.INVALID_PRODUCER_ID_MAPPING,
    ),
    _end(
        "other epoch",
        _as("epoch", producer_epoch=77, committed=True),
        E_.PRODUCER_FENCED,
        E_.INVALID_PRODUCER_EPOCH,
    ),
    _mark("valid", _marking((TOPIC, [0, 1]))),
    _mark(
        "absent partition", _marking((TOPIC, [9]), ("absent", [0])), E_.UNKNOWN_TOPIC_OR_PARTITION
    ),
    _mark("version of the transaction", _marking((TOPIC, [1]), transaction_version=2), lowest=2),
    _mark("no partitions", _marking()),
    _mark("none", lambda at, v: {"markers": []}),
]

# ---------------------------------------------------------------- descriptions


def _describing(*names: str) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        _opened(at, "described")
        _producer(at, "idle")
        return {"transactional_ids": list(names)}

    return fields


def _listing(**filters: Any) -> Fields:
    """List only the ids of these cases: others are in any state."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        producer = _opened(at, "described")["producer_id"]
        _producer(at, "idle")
        usual = {"state_filters": [], "producer_id_filters": [producer]}
        return usual | filters

    return fields


def _list(name: str, fields: Fields, *errors: int, lowest: int = 0) -> Case:
    return case(ListTransactionsRequest, name, fields, errors=errors, versions=(lowest, 99))


DESCRIPTIONS = [
    case(DescribeTransactionsRequest, "valid", _describing("described")),
    case(DescribeTransactionsRequest, "idle", _describing("idle")),
    case(
        DescribeTransactionsRequest,
        "unknown",
        _describing("unknown"),
        errors=[E_.TRANSACTIONAL_ID_NOT_FOUND],
    ),
    case(DescribeTransactionsRequest, "empty", _describing(""), errors=[E_.INVALID_REQUEST]),
    case(DescribeTransactionsRequest, "none", _describing()),
    _list("valid", _listing()),
    _list("in a state", _listing(state_filters=["Ongoing"])),
    _list("in no such state", _listing(state_filters=["Nonsense", "Empty", "dead"])),
    _list("of an unknown producer", _listing(producer_id_filters=[987654321])),
    _list("for longer than a day", _listing(duration_filter=86_400_000), lowest=1),
    _list("pattern", _listing(transactional_id_pattern="descr.*"), lowest=2),
    _list("pattern of a part", _listing(transactional_id_pattern="descr"), lowest=2),
    _list("empty pattern", _listing(transactional_id_pattern=""), lowest=2),
    _list(
        "bad pattern",
        _listing(transactional_id_pattern="a(b"),
        E_.INVALID_REGULAR_EXPRESSION,
        lowest=2,
    ),
    _list(
        "pattern of Java",
        _listing(transactional_id_pattern="(?=d).*"),
        E_.INVALID_REGULAR_EXPRESSION,
        lowest=2,
    ),
]

CASES = [*INITS, *ADDS, *OFFSETS, *ENDS, *DESCRIPTIONS]
