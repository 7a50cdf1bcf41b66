"""Guards of requests with many topics, or with a group named twice: one pass, no right missed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.produce_values import ProduceValues
from ottla.server.requests.api import served_apis
from ottla.server.requests.rights import Reduced
from ottla.types import ZERO_UUID

COUNT = 400
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
FetchTopic = FetchGroup.OffsetFetchRequestTopics
ShareGroup = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
ShareTopic = ShareGroup.DescribeShareGroupOffsetsRequestTopic
Described = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
Answered = OffsetFetchResponse.OffsetFetchResponseGroup


class Name(str):
    """A name of a topic that counts how often it is compared with an equal or another one."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Features:
    """The levels of a cluster's features."""

    share_version = 1

    def level(self, name: str) -> int:
        """Return the level of the feature that is asked for."""
        assert name == "share.version"
        return self.share_version


@pytest.fixture
def ctx(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the context of a client that has no right to topics whose names begin with `x`."""
    monkeypatch.setattr(Name, "compared", 0)

    def is_allowed(_operation: int, _kind: int, name: str) -> bool:
        return not name.startswith("x")

    return SimpleNamespace(
        api_version=8,
        authorize=is_allowed,
        is_allowed=is_allowed,
        broker=SimpleNamespace(topic_name=str, image=SimpleNamespace(features=Features())),
    )


def right_of(key: int, ctx: Any) -> Any:
    """Return the right of an API, for a request of which the context is about."""
    ctx.api = served_apis()[key]
    return ctx.api.right


def names() -> list[Name]:
    """Return the names of many topics, every second one without a right."""
    return [Name(f"{'x' if number % 2 else 'a'}{number}") for number in range(COUNT)]


def test_produced_partitions_are_compared_with_no_others(ctx: Any) -> None:
    """Half of them are denied; the others are left in the request, in order."""
    parts: list[Any] = [(name, 0, memoryview(b"")) for name in names()]
    request = ProduceValues(None, 1, 1000, list(parts))
    reduced = right_of(ApiKey.PRODUCE, ctx)(ctx, request)
    assert Name.compared < COUNT
    assert isinstance(reduced, Reduced)
    assert reduced.request.partitions == parts[::2]
    assert request.partitions == parts


def test_fetched_topics_are_compared_with_no_others(ctx: Any) -> None:
    """The same for a group's offsets."""
    topics = [FetchTopic(name=name, topic_id=ZERO_UUID, partition_indexes=[0]) for name in names()]
    group = FetchGroup(group_id="g", topics=list(topics))
    request = OffsetFetchRequest(groups=[group])
    reduced = right_of(ApiKey.OFFSET_FETCH, ctx)(ctx, request)
    assert Name.compared < COUNT
    assert isinstance(reduced, Reduced)
    assert reduced.request.groups[0].topics == topics[::2]
    assert group.topics == topics


def test_topics_of_share_groups_are_compared_with_no_others(ctx: Any) -> None:
    """The same for the offsets of a share group."""
    topics = [ShareTopic(topic_name=name, partitions=[0]) for name in names()]
    group = ShareGroup(group_id="g", topics=list(topics))
    request = DescribeShareGroupOffsetsRequest(groups=[group])
    reduced = right_of(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ctx)(ctx, request)
    assert Name.compared < COUNT
    assert isinstance(reduced, Reduced)
    assert reduced.request.groups[0].topics == topics[::2]
    assert group.topics == topics


def test_a_group_that_is_named_twice_keeps_no_denied_topic(ctx: Any) -> None:
    """Each of the two answers has its own refusals."""
    requested = [["x1"], ["a1"], None]
    groups = [
        FetchGroup(
            group_id="g",
            topics=None
            if topics is None
            else [
                FetchTopic(name=name, topic_id=ZERO_UUID, partition_indexes=[0]) for name in topics
            ],
        )
        for topics in requested
    ]
    reduced: Any = right_of(ApiKey.OFFSET_FETCH, ctx)(ctx, OffsetFetchRequest(groups=groups))
    allowed_topics = [group.topics or () for group in reduced.request.groups]
    assert [[one.name for one in topics] for topics in allowed_topics] == [[], ["a1"], []]
    everything: list[Any] = [
        SimpleNamespace(name=name, topic_id=ZERO_UUID) for name in ("x2", "a2")
    ]
    response: Any = SimpleNamespace(
        groups=[
            Answered(group_id="g", topics=[]),
            Answered(group_id="g", topics=[]),
            Answered(group_id="g", topics=list(everything)),
        ]
    )
    refused, allowed, rest = reduced.finish(response).groups
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert [(one.name, one.partitions[0].error_code) for one in refused.topics] == [("x1", code)]
    assert not allowed.topics
    assert [one.name for one in rest.topics] == ["a2"]


def test_a_share_group_that_is_named_twice_has_each_refusal_once(ctx: Any) -> None:
    """Each of the two results has the topics that were refused in its part of the request."""
    groups = [
        ShareGroup(group_id="g", topics=[ShareTopic(topic_name=name, partitions=[0])])
        for name in ("x1", "x2")
    ]
    request = DescribeShareGroupOffsetsRequest(groups=groups)
    finish = right_of(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ctx)(ctx, request).finish
    results = [Described(group_id="g", topics=[]) for _ in groups]
    response = finish(DescribeShareGroupOffsetsResponse(groups=results))
    assert [[one.topic_name for one in group.topics] for group in response.groups] == [
        ["x1"],
        ["x2"],
    ]


def test_a_share_group_with_an_error_has_no_refused_topics(ctx: Any) -> None:
    """As in Kafka's KafkaApis: the error is about the whole group."""
    names = ["x1", "a1"]
    group = ShareGroup(
        group_id="g", topics=[ShareTopic(topic_name=name, partitions=[0]) for name in names]
    )
    request = DescribeShareGroupOffsetsRequest(groups=[group])
    finish = right_of(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ctx)(ctx, request).finish
    code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    result = Described(group_id="g", topics=[], error_code=code)
    assert finish(DescribeShareGroupOffsetsResponse(groups=[result])).groups[0].topics == []


def test_a_cluster_without_share_groups_looks_at_no_rights(ctx: Any) -> None:
    """Each group is refused with UNSUPPORTED_VERSION, without a text, whoever asks."""
    ctx.broker.image.features.share_version = 0
    group = ShareGroup(group_id="x", topics=[ShareTopic(topic_name="x1", partitions=[0])])
    request = DescribeShareGroupOffsetsRequest(groups=[group])
    assert right_of(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ctx)(ctx, request) is None
    api = served_apis()[ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS]
    ctx.api_key, ctx.quota_use = api.key, None
    (answered,) = api.handler(ctx, request).groups
    assert answered.group_id == "x"
    assert answered.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answered.error_message is None
    assert answered.topics == []
