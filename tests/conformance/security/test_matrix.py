"""Who may do what, cell by cell as real Kafka 4.3.0: codes, silence, what is left out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol.apis.create_topics import CreateTopicsRequest
from ottla.protocol.apis.find_coordinator import FindCoordinatorRequest
from ottla.protocol.apis.init_producer_id import InitProducerIdRequest
from ottla.protocol.apis.list_groups import ListGroupsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest
from ottla.protocol.schema import Struct
from ottla.types import ZERO_UUID
from tests.conformance.security.cells import KINDS, ROWS
from tests.conformance.security.secured import CELLS
from tests.waits import wait_for

if TYPE_CHECKING:
    from tests.conformance.security.secured import SecuredSide

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
_NOT_COMPARED = frozenset({"api_keys", "brokers", "supported_features", "finalized_features"})
_STABLE = 5
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
    """Make the topic and give the rights; return the topic's id."""
    topic = CreateTopicsRequest.CreatableTopic(
        name="m-topic", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    side.ask("root", CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    side.set_acls([acl for cell in CELLS for acl in cell.acls])
    for key_type, key in enumerate(("m-group", "m-transaction", f"m-group:{ZERO_UUID}:0")):
        find_coordinator(side, key_type, key)
    first = InitProducerIdRequest(transactional_id="m-transaction", transaction_timeout_ms=1000)
    wait_for(lambda: not side.ask("root", first, _STABLE).error_code)
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
    answers = {}
    for cell in CELLS:
        for listener in cell.row.listeners:
            for version in cell.row.versions:
                request = cell.row.request(topic_id, version)
                name = f"{cell.row.name} v{version} @{listener} / {cell.kind}"
                answers[name] = shape(side.ask(cell.user, request, version, listener))
    return answers, effects(side)


def test_every_cell_is_the_same(sides: tuple[SecuredSide, SecuredSide]) -> None:
    """And so are the side effects of all of them."""
    with ThreadPoolExecutor(2) as both:
        theirs, ours = both.map(play, sides)
    different = [
        f"{name}\n  Kafka {answer}\n  Ottla {ours[0][name]}"
        for name, answer in theirs[0].items()
        if answer != ours[0][name] and not name.startswith(_AT_CONTROLLER)
    ]
    assert not different, f"{len(different)} of {len(theirs[0])}\n" + "\n".join(different)
    assert theirs[1] == ours[1]


def test_the_matrix_is_complete() -> None:
    """Each row is asked by every kind of user; each right that is needed is tested."""
    assert len(CELLS) == len({cell.user for cell in CELLS})
    assert len(CELLS) >= len(ROWS) * len(KINDS) > 400
