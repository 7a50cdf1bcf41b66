"""Who may do what, cell by cell as real Kafka 4.3.0: codes, silence, what is left out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.schema import Struct
from ottla.types import ZERO_UUID
from tests.conformance.security.cells import KINDS, ROWS
from tests.conformance.security.secured import CELLS, forwarding_side
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.conformance.security.cells import Cell
    from tests.conformance.security.secured import SecuredSide

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
_NOT_COMPARED = frozenset(
    {
        "api_keys",
        "brokers",
        "supported_features",
        "finalized_features",
        "current_voters",
        "observers",
        "nodes",
    }
)
_MAKES_A_TOPIC = "METADATA of none v0 @broker / super"
_MADE_BY_ANOTHER_CELL = "DELETE_TOPICS v1 @broker / wildcard"
"""Deletes a topic that a request which is not forwarded makes."""
_STABLE = 5
FORWARDED = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
"""What a broker sends on to the active controller."""
_AT_CONTROLLER = "DESCRIBE_USER_SCRAM_CREDENTIALS v0 @controller"
"""Kafka's controller fails with UNKNOWN_SERVER_ERROR at all who ask; ours answers."""


def shape(value: Any) -> Any:
    """Return what an answer says about rights: codes, operations, lengths, what is empty."""
    if not isinstance(value, Struct):
        return value
    found: dict[str, Any] = {}
    for field in type(value).fields:
        name, one = field.name, getattr(value, field.name)
        if name in _NOT_COMPARED:
            continue
        if isinstance(one, list):
            items = [shape(item) if isinstance(item, Struct) else "-" for item in one]
            found[name] = sorted(items, key=repr)
        elif isinstance(one, Struct):
            found[name] = shape(one)
        elif name.endswith(("error_code", "operations")):
            found[name] = int(one)
        elif isinstance(one, str | bytes | memoryview):
            found[name] = "given" if len(one) else "empty"
        elif one is None:
            found[name] = None
    return found


def prepare(side: SecuredSide) -> Any:
    """Make the topic, give the rights and find the coordinators; return the topic's id."""
    topic_id = make_topic(side)
    for key_type, key in enumerate(("m-group", "m-transaction", f"m-group:{ZERO_UUID}:0")):
        find_coordinator(side, key_type, key)
    first = InitProducerIdRequest(transactional_id="m-transaction", transaction_timeout_ms=1000)
    wait_for(lambda: not side.ask("root", first, _STABLE).error_code)
    return topic_id


def make_topic(side: SecuredSide) -> Any:
    """Make the topic and give the rights; return the topic's id."""
    topic = CreateTopicsRequest.CreatableTopic(
        name="m-topic", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    side.ask("root", CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    side.set_acls([acl for cell in CELLS for acl in cell.acls])
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="m-topic")])
    return side.ask("root", request).topics[0].topic_id


def find_coordinator(side: SecuredSide, key_type: int, key: str) -> None:
    """Wait until there is one: its internal topic is made by the first who asks."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    wait_for(lambda: not side.ask("root", request).coordinators[0].error_code)


def effects(side: SecuredSide) -> Any:
    """Return what there is after all cells: topics, groups, offsets."""
    topics = side.ask("root", MetadataRequest(topics=None)).topics
    groups = side.ask("root", ListGroupsRequest(states_filter=[], types_filter=[])).groups
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="m-group", topics=None)
    offsets = side.ask("root", OffsetFetchRequest(groups=[group], require_stable=False))
    return (
        sorted((one.name, len(one.partitions)) for one in topics),
        sorted(one.group_id for one in groups),
        shape(offsets),
    )


def play(side: SecuredSide) -> tuple[dict[str, Any], Any]:
    """Ask all cells in their versions, at their listeners; return the answers, and what is left."""
    topic_id = prepare(side)
    asked = [(cell, listener) for cell in CELLS for listener in cell.row.listeners]
    return ask(side, topic_id, asked), effects(side)


def ask(side: SecuredSide, topic_id: Any, asked: Iterable[tuple[Cell, str]]) -> dict[str, Any]:
    """Ask cells at listeners, in their versions; return the answers by name."""
    answers = {}
    for cell, listener in asked:
        for version in cell.row.versions:
            request = cell.row.request(topic_id, version)
            name = f"{cell.row.name} v{version} @{listener} / {cell.kind}"
            answers[name] = shape(side.ask(cell.user, request, version, listener))
            if name == _MAKES_A_TOPIC:
                wait_for(partial(is_made, side))
    return answers


def is_made(side: SecuredSide) -> bool:
    """Whether the topic is there that is created after its answer."""
    missing = MetadataRequest.MetadataRequestTopic(name="m-absent")
    request = MetadataRequest(topics=[missing], allow_auto_topic_creation=False)
    return not side.ask("root", request).topics[0].error_code


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Return the answers of ours that differ."""
    found = [
        f"{name}\n  Kafka {theirs[name]}\n  Ottla {answer}"
        for name, answer in ours.items()
        if answer != theirs[name] and not name.startswith(_AT_CONTROLLER)
    ]
    return f"{len(found)} of {len(ours)}\n" + "\n".join(found) if found else ""


@pytest.fixture(scope="module")
def played(sides: tuple[SecuredSide, SecuredSide]) -> Any:
    """Return what both nodes answered, and what is left."""
    with ThreadPoolExecutor(2) as both:
        return tuple(both.map(play, sides))


def test_every_cell_is_the_same(played: Any) -> None:
    """And so are the side effects of all of them."""
    theirs, ours = played
    assert set(theirs[0]) == set(ours[0])
    assert not (found := differences(theirs[0], ours[0])), found
    assert theirs[1] == ours[1]


def test_forwarded_cells_are_the_same(played: Any) -> None:
    """What a broker forwards to another node is decided there with the client's principal."""
    asked = [(cell, "broker") for cell in CELLS if cell.row.key in FORWARDED]
    assert len({cell.row.key for cell, _ in asked}) == len(FORWARDED)
    with forwarding_side() as side:
        ours = ask(side, make_topic(side), asked)
    del ours[_MADE_BY_ANOTHER_CELL]
    assert not (found := differences(played[0][0], ours)), found


def test_the_matrix_is_complete() -> None:
    """Each row is asked by every kind of user; each right that is needed is tested."""
    assert len(CELLS) == len({cell.user for cell in CELLS})
    assert len(CELLS) >= len(ROWS) * len(KINDS) > 400
