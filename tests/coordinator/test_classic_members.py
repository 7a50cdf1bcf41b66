"""Members of the classic protocol in consumer groups: deadlines, whatever happens to writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.coordinator.group.group_kind import MemberTimer
from ottla.errors import ErrorCode
from ottla.protocol import codec
from ottla.protocol.apis.join_group import JoinGroupRequest
from ottla.protocol.apis.sync_group import SyncGroupRequest
from ottla.protocol.records.consumer_protocol import ConsumerProtocolSubscription
from tests.coordinator.harness import context
from tests.coordinator.test_consumer_groups import beat, done, group_of, join, send, world

if TYPE_CHECKING:
    from ottla.purgatory.pending import Pending
    from tests.coordinator.harness import World

SESSION_MS = 10_000


def join_classic(made: World, member_id: str) -> Pending[Any]:
    """Send JoinGroup of a consumer that subscribes to t."""
    subscription = ConsumerProtocolSubscription(topics=["t"], user_data=None)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=b"\0\0" + codec.to_bytes(subscription, 0)
    )
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return made.coordinator.join_group(request, context(9))


def with_classic_member() -> tuple[World, str]:
    """Return a group of member a, and the id of a classic member that is about to join."""
    made = world()
    join(made, "a")
    refused = done(join_classic(made, ""))
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return made, refused.member_id


def test_a_member_whose_join_is_committed_late_is_removed_when_it_is_silent() -> None:
    """Its write had timed out: it has no answer, and its records are committed after all."""
    made, member_id = with_classic_member()
    made.log.is_holding = True
    answer = join_classic(made, member_id)
    made.pass_time(6_000)
    assert answer.done
    made.log.is_holding = False
    made.log.commit(0)
    assert member_id in group_of(made).members
    made.advance(SESSION_MS)
    assert member_id not in group_of(made).members


@pytest.mark.parametrize("has_synced", [False, True])
def test_a_member_that_changes_its_protocol_has_no_more_to_sync_or_rejoin(
    *, has_synced: bool
) -> None:
    """It stays for as long as it sends the heartbeats of its new protocol."""
    made, member_id = with_classic_member()
    joined = done(join_classic(made, member_id))
    assert joined.error_code == ErrorCode.NONE
    if has_synced:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        assert done(made.coordinator.sync_group(request, context(5))).error_code == 0
        group = group_of(made)
        made.shard().consumer.await_join("g", group.members[member_id])
    join(made, member_id)
    for _ in range(4):
        made.advance(SESSION_MS)
        epoch = group_of(made).members[member_id].member_epoch
        answer = send(made, member_id=member_id, member_epoch=epoch)
        assert answer.error_code == ErrorCode.NONE


def test_a_member_whose_removal_is_refused_revokes_in_time() -> None:
    """Its tombstones are not written: it is a member with the same deadline."""
    made = world()
    join(made, "a")
    join(made, "b")
    assert beat(made, "a", 2, 0, 1, 2, 3, 4, 5).member_epoch == 2
    made.log.next_error = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = send(made, member_id="a", member_epoch=-1)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert made.shard().consumer.expects(MemberTimer.REBALANCE, "g", "a")
    made.advance(SESSION_MS)
    assert list(group_of(made).members) == ["b"]
