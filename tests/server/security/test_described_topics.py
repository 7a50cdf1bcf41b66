"""Which topics hide the description of a group: those of assignments, as in Kafka's KafkaApis."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey, request_class, response_class
from ottla.server.handlers.groups import HIDDEN_TEXT
from ottla.server.requests.api import served_apis

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


def described(key: ApiKey, one: Any) -> tuple[int, str | None]:
    """Return how a client without rights to topics that begin with `x` sees a group."""
    api = served_apis()[key]
    ctx: Any = SimpleNamespace(
        api=api,
        api_version=1,
        authorize=lambda _operation, _kind, name: not name.startswith("x"),
        broker=SimpleNamespace(
            image=SimpleNamespace(features=SimpleNamespace(level=lambda _name: 1)),
            metadata=SimpleNamespace(
                config=SimpleNamespace(group_coordinator_rebalance_protocols=["consumer"])
            ),
        ),
    )
    group = SimpleNamespace(group_id="g", error_code=0, error_message=None, members=[one])
    request: Any = request_class(key)
    response: Any = response_class(key)
    decision: Any = api.right(ctx, request(group_ids=["g"]))
    (answered,) = decision.finish(response(groups=[group])).groups
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
    found = described(ApiKey.CONSUMER_GROUP_DESCRIBE, member(*topics))
    assert found == expected


@pytest.mark.parametrize(
    ("topics", "expected"),
    [(("x", "", ""), SEEN), (("a", "a", ""), SEEN), (("a", "x", ""), HIDDEN)],
)
def test_assignments_hide_a_share_group(
    topics: tuple[str, str, str], expected: tuple[int, str | None]
) -> None:
    """Its members have one assignment."""
    found = described(ApiKey.SHARE_GROUP_DESCRIBE, member(*topics))
    assert found == expected
