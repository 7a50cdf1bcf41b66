"""A cluster without share groups, as an administrator may leave it: what it answers to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from tests.conformance.security.secured import secured_sides

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.security.secured import SecuredSide

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]
_Group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
_UNSAFE = 3


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
    """UNSUPPORTED_VERSION without a text and without refused topics, on both nodes."""
    with secured_sides(kafka, tmp_path) as (theirs, ours):
        expected: list[tuple[int, str | None, list[Any]]]
        expected = [(int(ErrorCode.UNSUPPORTED_VERSION), None, [])] * 2
        assert _described(theirs) == expected
        assert _described(ours) == expected
