"""Every API in every version, asked without a right and with rights to something else.

Requests are built from the schemas: one with an empty element in each list, and one whose lists
name what the user may not touch, what it may, and what does not exist. Both nodes answer the same
codes in the same order, but for the rows of `REVIEWED`.
"""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from ottla.errors import UnsupportedVersion
from ottla.protocol.api_keys import ApiKey, advertised_versions, request_class
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.frames import encode_request
from ottla.protocol.schema import Struct
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from ottla.types import Uuid
from tests.conformance.differential.side import batch
from tests.conformance.kafka import join
from tests.conformance.security.test_matrix import find_coordinator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.protocol.schema import Request, StructMeta
    from tests.conformance.security.secured import SecuredSide

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
TOPICS: Final = ("w-topic", "w-hidden", "w-absent")
"""With rights, without a right, with rights and not there."""
GROUPS: Final = ("w-group", "w-hidden-group", "w-group-absent")
TRANSACTIONS: Final = ("w-transaction", "w-hidden-transaction", "w-transaction-absent")
USERS: Final = ("bob", "alice")
"""Without a right; with rights to topics, groups and transactions, but none to the cluster."""
SILENCE_S: Final = 2.0
KEY_TYPES: Final = ("group ", "transaction ", "share ")
LOGIN: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
VALUES: Final = {
    "acks": -1,
    "timeout_ms": 1000,
    "max_wait_ms": 0,
    "replica_id": -1,
    "endpoint_type": 1,
    "response_partition_limit": 10,
}
"""What makes a request one of a client that waits for an answer."""

ENUMERATIONS: Final = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
}
"""What 0 is no valid value of."""


class Reviewed(NamedTuple):
    """Answers whose names match may differ from Kafka's, for a reason."""

    names: str
    reason: str


REVIEWED: Final = (
    Reviewed(
        "(DESCRIBE|CREATE|DELETE)_ACLS v. empty .*",
        "Kafka cannot parse 0 as a type, a pattern or an operation and closes the connection;"
        " Ottla looks at the right first.",
    ),
    Reviewed(
        "(DESCRIBE|ALTER|INCREMENTAL_ALTER)_CONFIGS v. empty .*",
        "Kafka refuses an unknown type of resource before it looks at rights, by another code at a"
        " controller than at a broker; Ottla looks at the right to the cluster first.",
    ),
    Reviewed(
        "LIST_PARTITION_REASSIGNMENTS .*",
        "With the error of the whole request Kafka repeats each partition, without replicas.",
    ),
    Reviewed(
        "DESCRIBE_USER_SCRAM_CREDENTIALS .*@controller .*",
        "Kafka's controller fails with UNKNOWN_SERVER_ERROR at all who ask.",
    ),
    Reviewed(
        "DESCRIBE_PRODUCERS v0 empty .*",
        "Kafka looks at the form of a name before the right to it; Ottla looks at the right first.",
    ),
)
UNORDERED: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
    }
)
"""Kafka's order is that of a hash table, or shuffled."""


class Names(NamedTuple):
    """What the elements of lists are called, by the names of fields."""

    topics: Sequence[str]
    groups: Sequence[str]
    transactions: Sequence[str]
    topic_ids: Sequence[Uuid]


def build(cls: StructMeta, version: int, names: Names | None, index: int, depth: int = 0) -> Any:
    """Make a message whose lists have an empty element, or one for each of the names.

    `index` is that of the names outside of lists.
    """
    values: dict[str, Any] = {}
    for field in cls.fields:
        if version not in field.versions or version in field.tagged:
            continue
        if field.is_array:
            indexes = range(len(TOPICS)) if names is not None and not depth else [index]
            values[field.name] = [_element(field, version, names, at) for at in indexes]
        elif field.name in VALUES:
            values[field.name] = VALUES[field.name]
        elif field.name == "producer_id":
            values[field.name] = index
        elif names is not None and field.name in ENUMERATIONS:
            values[field.name] = ENUMERATIONS[field.name]
        elif field.name == "records":
            values[field.name] = batch()
        elif names is not None and field.element in {"str", "Uuid"}:
            values[field.name] = _named(field.name, cls.__name__, field.element, names, index)
    return cls(**{name: value for name, value in values.items() if value is not None})


def _element(field: Any, version: int, names: Names | None, index: int) -> Any:
    if field.struct is not None:
        return build(field.struct, version, names, index, 1)
    if field.element not in {"str", "Uuid"}:
        return b"" if field.element == "bytes" else 0
    if names is None:
        return "" if field.element == "str" else Uuid(bytes(16))
    return _named(field.name, "", field.element, names, index)


def _named(name: str, owner: str, element: str, names: Names, index: int) -> Any:
    """Return what a field is called by its name and the struct around it; None for its default."""
    if element == "Uuid":
        return names.topic_ids[index] if "topic" in name else None
    if "group" in name and "instance" not in name:
        return names.groups[index]
    if "transactional" in name:
        return names.transactions[index]
    is_topic = "topic" in name or (name == "name" and "opic" in owner)
    if is_topic or name == "resource_name":
        return names.topics[index]
    return names.groups[index] if name in {"coordinator_keys", "key"} else None


def codes(value: Any, *, in_order: bool) -> Any:
    """Return the codes of an answer and the names they belong to."""
    if not isinstance(value, Struct):
        return value
    found: dict[str, Any] = {}
    for field in type(value).fields:
        one = getattr(value, field.name)
        if field.name in {"brokers", "api_keys", "nodes", "supported_features"}:
            continue
        if isinstance(one, list):
            items = [codes(item, in_order=in_order) for item in one if isinstance(item, Struct)]
            found[field.name] = items if in_order else sorted(items, key=repr)
        elif isinstance(one, Struct):
            found[field.name] = codes(one, in_order=in_order)
        elif field.name.endswith("error_code"):
            found[field.name] = int(one)
        elif isinstance(one, str) and one.startswith("w-"):
            found[field.name] = one
    return found


def requests(names: Names) -> Iterator[tuple[str, str, Any, int]]:
    """Yield name, listener, request and version of all questions."""
    for key in sorted(ApiKey):
        cls = request_class(key)
        if key in LOGIN:
            continue
        for listener in cls.api_listeners:
            versions = advertised_versions(key)
            for version in range(max(versions.lowest, cls.versions.lowest), versions.highest + 1):
                for form, found, index in (
                    ("empty", None, 0),
                    ("hidden", names, 0),
                    ("", names, 1),
                ):
                    for kind in KEY_TYPES if key is ApiKey.FIND_COORDINATOR else ("",):
                        request = build(cls, version, found, index)
                        if kind:
                            request.key_type = KEY_TYPES.index(kind)
                        try:
                            encode_request(request, version, 0, "")
                        except (ValueError, UnsupportedVersion):
                            continue
                        name = f"{key.name} v{version} {kind}{form} @{listener}"
                        yield name, listener, request, version


def acls() -> Iterator[Acl]:
    """Yield alice's entries."""
    rights: list[tuple[ResourceType, str, tuple[Operation, ...]]]
    rights = [(ResourceType.TOPIC, one, (Operation.READ, Operation.WRITE)) for one in TOPICS[::2]]
    rights += [(ResourceType.GROUP, one, (Operation.READ,)) for one in GROUPS[::2]]
    rights += [
        (ResourceType.TRANSACTIONAL_ID, one, (Operation.WRITE,)) for one in TRANSACTIONS[::2]
    ]
    for kind, name, operations in rights:
        for operation in operations:
            yield Acl(
                kind, PatternType.LITERAL, name, "User:alice", "*", operation, Permission.ALLOW
            )


def play(side: SecuredSide) -> Mapping[str, Any]:
    """Make what is there, ask everything as both users, return the codes by name."""
    side.set_acls(acls())
    for name in TOPICS[:2]:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        side.ask("root", CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    side.settle()
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in TOPICS[:2]]
    ids = [one.topic_id for one in side.ask("root", MetadataRequest(topics=named)).topics]
    for key_type, key in enumerate((GROUPS[0], TRANSACTIONS[0], f"{GROUPS[0]}:{ids[0]}:0")):
        find_coordinator(side, key_type, key)
    names = Names(TOPICS, GROUPS, TRANSACTIONS, [*ids, Uuid(bytes([7] * 16))])
    answers = {}
    for name, listener, request, version in requests(names):
        for user in USERS:
            answer = side.ask(user, request, version, listener, silence_s=SILENCE_S)
            answers[f"{name} by {user}"] = _shown(answer, request)
    return answers


def _shown(answer: Any, request: Request) -> Any:
    if answer is None:
        return "closed"
    return codes(answer, in_order=request.message_key not in UNORDERED)


def test_refusals_are_those_of_kafka(sides: tuple[SecuredSide, SecuredSide]) -> None:
    """Codes, their order, silence, ends of connections; a reviewed row has to be needed."""
    with ThreadPoolExecutor(2) as both:
        theirs, ours = both.map(play, sides)
    assert set(theirs) == set(ours)
    assert len(theirs) > 1000
    different = [name for name, answer in ours.items() if answer != theirs[name]]
    needed = {
        row for row in REVIEWED for name in different if re.fullmatch(row.names, name) is not None
    }
    unreviewed = [
        f"{name}\n  Kafka {theirs[name]}\n  Ottla {ours[name]}"
        for name in different
        if not any(re.fullmatch(row.names, name) for row in REVIEWED)
    ]
    assert not unreviewed, f"{len(unreviewed)} of {len(ours)}\n" + "\n".join(unreviewed)
    assert needed == set(REVIEWED)


def received(address: tuple[str, int], *sent: bytes) -> list[bytes]:
    """Return what a node sends for each of these on a connection that it then closes."""
    found = []
    with socket.create_connection(address, timeout=SILENCE_S) as connection:
        for data in sent:
            connection.sendall(data)
            found.append(_part(connection))
        if found[-1]:
            assert _part(connection) == b""
    return found


def _part(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except ConnectionResetError:  # the node closed before it had read all
        return b""


def framed(request: Request, version: int) -> bytes:
    """Return a request as it is sent."""
    return join(encode_request(request, version, 7, "refused"))


FRAME_HEAD: Final = 4 + 4 + 2
"""Size, correlation id and error code."""
PLAIN_BYTES: Final = {
    "a request": framed(ApiVersionsRequest(), 0),
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "zeros": bytes(20),
}


@pytest.mark.parametrize("sent", PLAIN_BYTES.values(), ids=PLAIN_BYTES)
def test_a_client_without_tls_is_told(sides: tuple[SecuredSide, SecuredSide], sent: bytes) -> None:
    """An alert before the end, so that it can tell the wrong protocol from a broken node."""
    theirs, ours = (received(side.tls, sent) for side in sides)
    assert ours == theirs


@pytest.mark.parametrize("request_", [MetadataRequest(topics=[]), ListGroupsRequest()])
def test_another_request_in_the_middle_of_a_login(
    sides: tuple[SecuredSide, SecuredSide], request_: Request
) -> None:
    """Both close; only Kafka answers first.

    Reviewed: for its answer Kafka parses the body of any API of a client that has not logged in.
    Here nothing but ApiVersions and the login's own messages is read before the login.
    """
    handshake = framed(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    theirs, ours = (received(side.login, handshake, framed(request_, 3)) for side in sides)
    assert theirs[0][:FRAME_HEAD] == ours[0][:FRAME_HEAD]  # no error; the list has Kafka's order
    assert theirs[1]
    assert ours[1] == b""
