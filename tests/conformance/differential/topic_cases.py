"""Metadata and the life of topics: create, grow, describe, elect, move, delete.

Kafka: KafkaApis.handleTopicMetadataRequest, DescribeTopicPartitionsRequestHandler, ControllerApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.apis.create_partitions import CreatePartitionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.delete_topics import DeleteTopicsRequest
from ottla.protocol.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.apis.elect_leaders import ElectLeadersRequest
from ottla.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.types import ZERO_UUID, Uuid
from tests.conformance.differential.case import case

if TYPE_CHECKING:
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
OTHER_ID = Uuid(b"no such topic id")
BOTH = ("broker", "controller")

# ---------------------------------------------------------------- metadata


def _about(*names: str, create: bool = False, **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.topic("described", 3)
        topics = [{"name": name} for name in names]
        return {"topics": topics, "allow_auto_topic_creation": create, **options}

    return fields


def _by_id(at: Side, version: int) -> dict[str, Any]:
    at.topic("described", 3)
    topics = [{"topic_id": at.topic_id("described"), "name": None}]
    return {"topics": topics, "allow_auto_topic_creation": False}


def _nameless(*names: str | None) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.topic("described", 3)
        topics = [{"name": name, "topic_id": ZERO_UUID} for name in names]
        return {"topics": topics, "allow_auto_topic_creation": False}

    return fields


def _by_other_id(at: Side, version: int) -> dict[str, Any]:
    return {"topics": [{"topic_id": OTHER_ID, "name": None}], "allow_auto_topic_creation": False}


def _by_both(at: Side, version: int) -> dict[str, Any]:
    at.topic("described", 3)
    topics = [{"topic_id": at.topic_id("described"), "name": "described"}]
    return {"topics": topics, "allow_auto_topic_creation": False}


def _ids_with_names(at: Side, version: int) -> dict[str, Any]:
    own = at.topic_id(at.topic("described", 3))
    ids = {"": OTHER_ID, "other": own, "described": own}
    topics: list[dict[str, Any]] = [{"name": at.topic("described-too", 2)}]
    topics += [{"topic_id": topic_id, "name": name} for name, topic_id in ids.items()]
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }


def _auto_created(at: Side, version: int) -> dict[str, Any]:
    """Ask for a topic that will be made; the first answer says that it has no leader yet."""
    return {"topics": [{"name": f"made-by-{version}"}], "allow_auto_topic_creation": True}


def _is_made(at: Side, version: int) -> Any:
    name = f"made-by-{version}"
    at.until(lambda: bool(at.topic_id(name)), f"{name} is made")
    answer = at.ask(ApiKey.METADATA, topics=[{"name": name}], allow_auto_topic_creation=False)
    return at.normalise(answer, 13)


def _meta(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(MetadataRequest, name, fields, errors=errors, **options)


LOST = E_.UNKNOWN_TOPIC_OR_PARTITION
_NAMELESS: dict[str, list[str | None]] = {
    "alone": [None],
    "first": [None, "described"],
    "last": ["described", None],
}
METADATA = [
    _meta("valid", _about("described")),
    _meta("two", _about("described", "described")),
    _meta("none", _about(), versions=(1, 99)),
    _meta("all", lambda at, v: {"topics": None if v else []}),
    _meta("unknown topic", _about("absent"), LOST, versions=(4, 99)),
    _meta("invalid topic", _about("a b"), E_.INVALID_TOPIC_EXCEPTION, versions=(4, 99)),
    _meta("invalid topic to make", _about("a b", create=True), E_.INVALID_TOPIC_EXCEPTION),
    _meta("empty name", _about(""), E_.INVALID_TOPIC_EXCEPTION, versions=(4, 99)),
    _meta("known and unknown", _about("described", "absent"), LOST, versions=(4, 99)),
    _meta("makes a topic", _auto_created, LOST, after=_is_made),
    _meta("by id", _by_id, E_.INVALID_REQUEST, versions=(10, 99)),
    *(
        _meta(f"neither name nor id, {what}, {code.name}", _nameless(*names), code, versions=span)
        for what, names in _NAMELESS.items()
        for code, span in ((E_.INVALID_REQUEST, (10, 11)), (E_.UNKNOWN_SERVER_ERROR, (12, 99)))
    ),
    _meta("by unknown id", _by_other_id, E_.UNKNOWN_TOPIC_ID, versions=(12, 99)),
    _meta("by id and name", _by_both, versions=(12, 99)),
    _meta("ids next to names", _ids_with_names, E_.UNKNOWN_TOPIC_ID, versions=(12, 99)),
    _meta(
        "with operations",
        _about(
            "described",
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
        versions=(8, 99),
    ),
]


def _partitions(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(DescribeTopicPartitionsRequest, name, fields, errors=errors, **options)


def _page(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.topic("described", 3)
        at.topic("described-too", 2)
        start = {"topic_name": cursor[0], "partition_index": cursor[1]} if cursor else None
        topics = [{"name": name} for name in names]
        return {"topics": topics, "response_partition_limit": limit, "cursor": start}

    return fields


PARTITIONS = [
    _partitions("valid", _page("described")),
    _partitions("two", _page("described-too", "described")),
    _partitions("twice the same", _page("described", "described")),
    _partitions("limited", _page("described-too", "described", limit=2)),
    _partitions("limited at a topic's end", _page("described-too", "described", limit=3)),
    _partitions("limit 0", _page("described", limit=0)),
    _partitions("limit -1", _page("described", limit=-1)),
    _partitions("goes on", _page("described", "described-too", cursor=("described", 2))),
    _partitions("continues after the last", _page("described", cursor=("described", 9))),
    _partitions(
        "goes on at the next",
        _page("described", "described-too", cursor=("described-a", 0)),
        E_.INVALID_REQUEST,
    ),
    _partitions(
        "cursor at an unknown topic", _page("described", cursor=("absent", 0)), E_.INVALID_REQUEST
    ),
    _partitions(
        "negative cursor", _page("described", cursor=("described", -1)), E_.INVALID_REQUEST
    ),
    _partitions("no name", _page("", "described"), E_.UNKNOWN_SERVER_ERROR),
    _partitions(
        "no name, goes on there",
        _page("", "described", cursor=("", 0)),
        E_.INVALID_TOPIC_EXCEPTION,
    ),
    _partitions(
        "no name, continues after the last", _page("", "described", cursor=("described", 1))
    ),
    _partitions("unknown topic", _page("absent"), LOST),
    _partitions("invalid topic", _page("a b"), E_.INVALID_TOPIC_EXCEPTION),
]

# ---------------------------------------------------------------- create


def _created(name: str, partitions: int = 1, replicas: int = 1, **options: Any) -> Fields:
    """Return fields that create a topic of an own name for each version and listener."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        own = name.format(at.label)
        topic = {"name": own, "num_partitions": partitions, "replication_factor": replicas}
        configs = [
            {"name": key.replace("_", "."), "value": value}
            for key, value in options.get("configs", {}).items()
        ]
        assignments = [
            {"partition_index": index, "broker_ids": brokers}
            for index, brokers in options.get("assignments", {}).items()
        ]
        whole = {**topic, "configs": configs, "assignments": assignments}
        return {
            "topics": [whole] * options.get("times", 1),
            "timeout_ms": 10_000,
            "validate_only": options.get("validate_only", False),
        }

    return fields


def _existing(at: Side, version: int) -> dict[str, Any]:
    at.topic("described", 3)
    return _created("described")(at, version)


def _create(name: str, fields: Fields, *errors: int, **options: Any) -> list[Case]:
    return [
        case(CreateTopicsRequest, name, fields, errors=errors, listener=listener, **options)
        for listener in BOTH
    ]


CREATE = [
    *_create(
        "valid", _created("{}", 2, configs={"retention_ms": "5", "cleanup_policy": "compact"})
    ),
    *_create("defaults", _created("{}", -1, -1), versions=(4, 99)),
    *_create("validate only", _created("{}", 2, validate_only=True)),
    *_create("assigned", _created("{}", -1, -1, assignments={0: [1], 1: [1]})),
    *_create(
        "assigned to an unknown broker",
        _created("{}", -1, -1, assignments={0: [9]}),
        E_.INVALID_REPLICA_ASSIGNMENT,
    ),
    *_create(
        "assigned twice",
        _created("{}", -1, -1, assignments={0: [1, 1]}),
        E_.INVALID_REPLICA_ASSIGNMENT,
    ),
    *_create(
        "assigned with a gap",
        _created("{}", -1, -1, assignments={1: [1]}),
        E_.INVALID_REPLICA_ASSIGNMENT,
    ),
    *_create(
        "assigned and counted", _created("{}", 2, 1, assignments={0: [1]}), E_.INVALID_REQUEST
    ),
    *_create("exists", _existing, E_.TOPIC_ALREADY_EXISTS),
    *_create("twice", _created("{}", times=2), E_.INVALID_REQUEST),
    *_create("no partitions", _created("{}", 0), E_.INVALID_PARTITIONS),
    *_create("partitions -2", _created("{}", -2), E_.INVALID_PARTITIONS),
    *_create("no replicas", _created("{}", 1, 0), E_.INVALID_REPLICATION_FACTOR),
    *_create("too many replicas", _created("{}", 1, 3), E_.INVALID_REPLICATION_FACTOR),
    *_create("too many partitions", _created("{}", 10_001), E_.POLICY_VIOLATION),
    *_create("too many records", _created("{}", 10_000), E_.POLICY_VIOLATION),
    *_create("too many partitions, twice", _created("{}", 10_001, times=2), E_.INVALID_REQUEST),
    *_create("invalid name", _created("a b"), E_.INVALID_TOPIC_EXCEPTION),
    *_create("empty name", _created(""), E_.INVALID_TOPIC_EXCEPTION),
    *_create("dot", _created("."), E_.INVALID_TOPIC_EXCEPTION),
    *_create("long name", _created("n" * 250), E_.INVALID_TOPIC_EXCEPTION),
    *_create("metadata topic", _created("__cluster_metadata"), E_.INVALID_REQUEST),
    case(CreateTopicsRequest, "collides", _created("made.by_0"), versions=(7, 7)),
    *_create("unknown setting", _created("{}", configs={"nope": "1"}), E_.INVALID_CONFIG),
    *_create("invalid setting", _created("{}", configs={"retention_ms": "z"}), E_.INVALID_CONFIG),
    *_create("null setting", _created("{}", configs={"retention_ms": None}), E_.INVALID_CONFIG),
    *_create("no topics", lambda at, v: {"topics": [], "timeout_ms": 1}),
]

# ---------------------------------------------------------------- grow, delete


def _grown(count: int, name: str = "{}", **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        own = at.topic(name.format(at.label), 2) if "{}" in name else name
        requested = {"name": own, "count": count, "assignments": options.get("assignments")}
        return {
            "topics": [requested] * options.get("times", 1),
            "timeout_ms": 10_000,
            "validate_only": options.get("validate_only", False),
        }

    return fields


def _grow(name: str, fields: Fields, *errors: int) -> list[Case]:
    return [
        case(CreatePartitionsRequest, name, fields, errors=errors, listener=listener)
        for listener in BOTH
    ]


GROW = [
    *_grow("valid", _grown(3)),
    *_grow("assigned", _grown(3, assignments=[{"broker_ids": [1]}])),
    *_grow("validate only", _grown(3, validate_only=True)),
    *_grow("the same count", _grown(2), E_.INVALID_PARTITIONS),
    *_grow("fewer", _grown(1), E_.INVALID_PARTITIONS),
    *_grow("negative", _grown(-1), E_.INVALID_PARTITIONS),
    *_grow("unknown topic", _grown(3, "absent"), LOST),
    *_grow(
        "too few assigned",
        _grown(4, assignments=[{"broker_ids": [1]}]),
        E_.INVALID_REPLICA_ASSIGNMENT,
    ),
    *_grow(
        "assigned to an unknown broker",
        _grown(3, assignments=[{"broker_ids": [9]}]),
        E_.INVALID_REPLICA_ASSIGNMENT,
    ),
    *_grow(
        "assigned an empty list",
        _grown(3, assignments=[{"broker_ids": []}]),
        E_.INVALID_REPLICA_ASSIGNMENT,
    ),
    *_grow("twice", _grown(3, times=2), E_.INVALID_REQUEST),
]


def _deleted(*names: str, by_id: bool = False) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        own = [at.topic(at.label) if name == "{}" else name for name in names]
        states = [
            {"name": None, "topic_id": at.topic_id(name) or OTHER_ID}
            if by_id
            else {"name": name, "topic_id": ZERO_UUID}
            for name in own
        ]
        return {"topic_names": own, "topics": states, "timeout_ms": 10_000}

    return fields


def _both_ways(at: Side, version: int) -> dict[str, Any]:
    at.topic("described", 3)
    state = {"name": "described", "topic_id": at.topic_id("described")}
    return {"topics": [state], "timeout_ms": 10_000}


def _by_name_and_id(at: Side, version: int) -> dict[str, Any]:
    at.topic("described", 3)
    by_name = {"name": "described", "topic_id": ZERO_UUID}
    by_id = {"name": None, "topic_id": at.topic_id("described")}
    return {"topics": [by_name, by_id], "timeout_ms": 10_000}


def _delete(name: str, fields: Fields, *errors: int, **options: Any) -> list[Case]:
    return [
        case(DeleteTopicsRequest, name, fields, errors=errors, listener=listener, **options)
        for listener in BOTH
    ]


DELETE = [
    *_delete("valid", _deleted("{}")),
    *_delete("by id", _deleted("{}", by_id=True), versions=(6, 99)),
    *_delete("unknown topic", _deleted("absent"), LOST),
    *_delete("unknown id", _deleted("absent", by_id=True), E_.UNKNOWN_TOPIC_ID, versions=(6, 99)),
    *_delete("name and id", _both_ways, E_.INVALID_REQUEST, versions=(6, 99)),
    *_delete("by name and by id", _by_name_and_id, E_.INVALID_REQUEST, versions=(6, 99)),
    *_delete("twice", _deleted("{}", "{}"), E_.INVALID_REQUEST),
    *_delete(
        "neither name nor id",
        lambda at, v: {"topics": [{"name": None}], "timeout_ms": 1},
        E_.INVALID_REQUEST,
        versions=(6, 99),
    ),
    *_delete(
        "two entries without name and id",
        lambda at, v: {"topics": [{"name": None}] * 2, "timeout_ms": 1},
        E_.INVALID_REQUEST,
        versions=(6, 99),
    ),
    *_delete("no topics", lambda at, v: {"topics": [], "timeout_ms": 1}),
]

# ---------------------------------------------------------------- elections and moves


def _elected(kind: int, topic: str = "described", *partitions: int) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.topic("described", 3)
        requested = {"topic": topic, "partitions": list(partitions or (0,))}
        return {"election_type": kind, "topic_partitions": [requested], "timeout_ms": 5000}

    return fields


def _elect(name: str, fields: Fields, *errors: int, **options: Any) -> list[Case]:
    return [
        case(ElectLeadersRequest, name, fields, errors=errors, listener=listener, **options)
        for listener in BOTH
    ]


ELECT = [
    *_elect("valid, not needed", _elected(0), E_.ELECTION_NOT_NEEDED),
    *_elect("unclean, not needed", _elected(1), E_.ELECTION_NOT_NEEDED, versions=(1, 99)),
    *_elect("all", lambda at, v: {"topic_partitions": None, "timeout_ms": 5000}),
    *_elect("none", lambda at, v: {"topic_partitions": [], "timeout_ms": 5000}),
    *_elect("unknown topic", _elected(0, "absent"), LOST),
    *_elect("unknown partition", _elected(0, "described", 9), LOST),
    *_elect("unknown kind", _elected(7), E_.INVALID_REQUEST, versions=(1, 99)),
    *_elect(
        "unknown kind, none",
        lambda at, v: {"election_type": 7, "topic_partitions": [], "timeout_ms": 5000},
        versions=(1, 99),
    ),
    *_elect(
        "unknown kind, all",
        lambda at, v: {"election_type": 7, "topic_partitions": None, "timeout_ms": 5000},
        E_.INVALID_REQUEST,
        versions=(1, 99),
    ),
    *_elect(
        "unknown kind, no partitions",
        lambda at, v: {
            "election_type": 7,
            "topic_partitions": [{"topic": "absent", "partitions": []}],
            "timeout_ms": 5000,
        },
        E_.INVALID_REQUEST,
        versions=(1, 99),
    ),
]


def _moved(replicas: list[int] | None, topic: str = "described", partition: int = 0) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.topic("described", 3)
        requested = {"partition_index": partition, "replicas": replicas}
        return {"topics": [{"name": topic, "partitions": [requested]}], "timeout_ms": 5000}

    return fields


def _move(name: str, fields: Fields, *errors: int) -> list[Case]:
    return [
        case(AlterPartitionReassignmentsRequest, name, fields, errors=errors, listener=listener)
        for listener in BOTH
    ]


def _moves(name: str, fields: Fields, *errors: int) -> list[Case]:
    return [
        case(ListPartitionReassignmentsRequest, name, fields, errors=errors, listener=listener)
        for listener in BOTH
    ]


MOVE = [
    *_move("valid, stays", _moved([1])),
    *_move("cancel", _moved(None), E_.NO_REASSIGNMENT_IN_PROGRESS),
    *_move("to an unknown broker", _moved([9]), E_.INVALID_REPLICA_ASSIGNMENT),
    *_move("to no replicas", _moved([]), E_.INVALID_REPLICA_ASSIGNMENT),
    *_move("unknown topic", _moved([1], "absent"), LOST),
    *_move("unknown partition", _moved([1], "described", 9), LOST),
    *_moves("valid, all", lambda at, v: {"topics": None}),
    *_moves(
        "of a topic",
        lambda at, v: {"topics": [{"name": "described", "partition_indexes": [0]}]},
    ),
    *_moves(
        "of an unknown topic",
        lambda at, v: {"topics": [{"name": "absent", "partition_indexes": [0]}]},
    ),
]
CASES: list[Case] = [*METADATA, *PARTITIONS, *CREATE, *GROW, *DELETE, *ELECT, *MOVE]
