"""Which topics hide the description of a group: those of assignments, as in Kafka's KafkaApis."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.consumer_group_describe import ConsumerGroupDescribeResponse
from ottla.protocol.apis.share_group_describe import ShareGroupDescribeResponse
from ottla.server.handlers.rights.groups import HIDDEN_TEXT, consumer_group_describe
from ottla.server.handlers.rights.share_groups import share_group_describe

HIDDEN = (int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), HIDDEN_TEXT)
SEEN = (0, None)


def member(subscribed: str, assigned: str, target: str) -> Any:
    """Return a member; the names are topics."""

    def assignment(topic: str) -> Any:
        parts = [SimpleNamespace(topic_name=topic)] if topic else []
        return SimpleNamespace(topic_partitions=parts)

    return SimpleNamespace(
        subscribed_topic_names=[subscribed],
        assignment=assignment(assigned),
        target_assignment=assignment(target),
    )


def described(guard: Any, response: Any, one: Any) -> tuple[int, str | None]:
    """Return how a client without rights to topics that begin with `x` sees a group."""
    ctx = SimpleNamespace(authorize=lambda _operation, _kind, name: not name.startswith("x"))
    group = SimpleNamespace(group_id="g", error_code=0, error_message=None, members=[one])
    finish = guard(ctx, SimpleNamespace(group_ids=["g"]))
    (answered,) = finish(response(groups=[group])).groups
    return answered.error_code, answered.error_message


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (("x", "", ""), SEEN),
        (("a", "a", "a"), SEEN),
        (("a", "x", ""), HIDDEN),
        (("a", "", "x"), HIDDEN),
    ],
)
def test_assignments_hide_a_consumer_group(
    topics: tuple[str, str, str], expected: tuple[int, str | None]
) -> None:
    """That of now and the target; not a subscription without partitions."""
    found = described(consumer_group_describe, ConsumerGroupDescribeResponse, member(*topics))
    assert found == expected


@pytest.mark.parametrize(
    ("topics", "expected"),
    [(("x", "", ""), SEEN), (("a", "a", ""), SEEN), (("a", "x", ""), HIDDEN)],
)
def test_assignments_hide_a_share_group(
    topics: tuple[str, str, str], expected: tuple[int, str | None]
) -> None:
    """Its members have one assignment."""
    found = described(share_group_describe, ShareGroupDescribeResponse, member(*topics))
    assert found == expected
