"""A cluster without share groups, as an administrator may leave it: what it answers to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.apis.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.apis.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.apis.share_fetch import ShareFetchRequest
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from ottla.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.conformance.security.secured import secured_sides

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.security.secured import SecuredSide

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
_Group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
_UNSAFE = 3
_MEMBER = "0" * 36
_LONG = "0" * 37


def _heartbeat(member_id: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=0, subscribed_topic_names=["hidden"]
    )


def _answers_to_long_ids(side: SecuredSide) -> list[int]:
    """Return what a member id that is too long is answered, with a right to the group and without.

    None of the users has a right to the topic.
    """
    read = Acl(
        ResourceType.GROUP,
        PatternType.LITERAL,
        "g",
        "User:bob",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    side.set_acls([read])
    return [side.ask(user, _heartbeat(_LONG)).error_code for user in ("bob", "alice")]


def _refusals(side: SecuredSide) -> list[tuple[int, str | None]]:
    """Return what a user without rights is answered by the other APIs of share groups."""
    acknowledge = ShareAcknowledgeRequest(
        group_id="g", member_id=_MEMBER, share_session_epoch=1, topics=[]
    )
    fetch = ShareFetchRequest(
        group_id="g",
        member_id=_MEMBER,
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_records=1,
        batch_size=1,
        topics=[],
        forgotten_topics_data=[],
    )
    topic = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic(topic_name="hidden")
    answers = [
        side.ask("alice", one)
        for one in (
            _heartbeat(_MEMBER),
            _heartbeat(_LONG),
            fetch,
            acknowledge,
            AlterShareGroupOffsetsRequest(group_id="g", topics=[]),
            DeleteShareGroupOffsetsRequest(group_id="g", topics=[topic]),
        )
    ]
    describe = ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    answers += side.ask("alice", describe).groups
    return [(one.error_code, one.error_message) for one in answers]


def _described(side: SecuredSide) -> list[tuple[int, str | None, list[Any]]]:
    """Return what a user without rights is answered about a topic and about all topics."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="share.version", max_version_level=0, upgrade_type=_UNSAFE
    )
    answer = side.ask("root", UpdateFeaturesRequest(feature_updates=[update]))
    assert answer.error_code == 0, answer
    side.settle()
    topic = _Group.DescribeShareGroupOffsetsRequestTopic(topic_name="hidden", partitions=[0])
    groups = [_Group(group_id="g", topics=[topic]), _Group(group_id="h", topics=None)]
    found = side.ask("alice", DescribeShareGroupOffsetsRequest(groups=groups)).groups
    return [(one.error_code, one.error_message, one.topics) for one in found]


def test_each_group_is_refused_before_rights_are_looked_at(kafka: Any, tmp_path: Path) -> None:
    """UNSUPPORTED_VERSION without a text and without refused topics, on both nodes.

    With share groups, rights to the group come first, then the member id, then rights to topics.
    """
    with secured_sides(kafka, tmp_path) as (theirs, ours):
        expected: list[tuple[int, str | None, list[Any]]]
        expected = [(int(ErrorCode.UNSUPPORTED_VERSION), None, [])] * 2
        for side in (theirs, ours):
            assert _answers_to_long_ids(side) == [
                ErrorCode.INVALID_REQUEST,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ]
            assert _described(side) == expected
        assert _refusals(ours) == _refusals(theirs)
        assert {code for code, _ in _refusals(ours)} == {ErrorCode.UNSUPPORTED_VERSION}
