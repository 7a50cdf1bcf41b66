"""Removing ACLs: one entry without a scan, all others in slices."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.controller import acls
from ottla.controller.acls import AclControl
from ottla.controller.result import in_one_turn
from ottla.protocol.apis.create_acls import CreateAclsRequest
from ottla.protocol.apis.delete_acls import DeleteAclsRequest
from ottla.security.acl import Operation, PatternType, Permission, ResourceType
from ottla.timeline import SnapshotRegistry

if TYPE_CHECKING:
    from ottla.controller.result import ControllerResult

COUNT = 5


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> AclControl:
    """Return entries for topics t0 to t4, of which a slice compares two."""
    monkeypatch.setattr(acls, "_ENTRIES_PER_SLICE", 2)
    made = AclControl(SnapshotRegistry(), Random(1))
    creation = CreateAclsRequest.AclCreation
    requested = [
        creation(
            resource_type=ResourceType.TOPIC,
            resource_name=f"t{number}",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:a",
            host="*",
            operation=Operation.READ,
            permission_type=Permission.ALLOW,
        )
        for number in range(COUNT)
    ]
    for record, _ in made.create(CreateAclsRequest(creations=requested)).records:
        made.replay_entry(record)  # type: ignore[arg-type] # all are entries
    return made


def deletion(name: str | None) -> DeleteAclsRequest:
    """Return the request to remove the entries of a topic, or of all topics."""
    one = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter="User:a",
        host_filter="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )
    return DeleteAclsRequest(filters=[one])


def apply(control: AclControl, result: ControllerResult[Any]) -> None:
    """Replay the removals."""
    for record, _ in result.records:
        control.replay_remove(record)  # type: ignore[arg-type] # all are removals


def test_an_entry_is_found_without_a_scan(control: AclControl) -> None:
    """A request may have thousands of exact filters, and the cluster 100,000 entries."""
    result = in_one_turn(control.delete(deletion("t3")))
    assert [one.resource_name for one in result.response.filter_results[0].matching_acls] == ["t3"]
    apply(control, result)
    assert not in_one_turn(control.delete(deletion("t3"))).records


def test_what_another_request_removes_meanwhile_is_removed_once(control: AclControl) -> None:
    """A second removal of an entry would stop every node that replays it."""
    slices = control.delete(deletion(None))
    assert next(slices) == []
    apply(control, in_one_turn(control.delete(deletion("t0"))))
    assert next(slices) == []
    with pytest.raises(StopIteration) as end:
        next(slices)
    result = end.value.value
    assert len(result.response.filter_results[0].matching_acls) == COUNT
    assert len(result.records) == COUNT - 1
    assert result.is_atomic
