"""APIs of a feature that the cluster does not have are refused before rights are looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from ottla.protocol.api_keys import ApiKey, request_class
from ottla.server.requests.guards import guard_of

APIS = {
    SHARE_VERSION: (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
    GROUP_VERSION: (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    STREAMS_VERSION: (ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
}


def context(key: int, levels: dict[str, int], asked: list[object]) -> Any:
    """Return the context of a client without rights; `asked` gets those that are looked at."""

    def authorize(*right: object) -> bool:
        asked.append(right)
        return False

    config = SimpleNamespace(group_coordinator_rebalance_protocols=["consumer", "streams"])
    features = SimpleNamespace(level=levels.__getitem__)
    broker = SimpleNamespace(
        image=SimpleNamespace(features=features), metadata=SimpleNamespace(config=config)
    )
    return SimpleNamespace(api_key=key, api_version=0, authorize=authorize, broker=broker)


@pytest.mark.parametrize(
    ("feature", "key"), [(name, key) for name, keys in APIS.items() for key in keys]
)
def test_rights_come_after_the_feature(feature: str, key: int) -> None:
    """As in Kafka: the handler answers UNSUPPORTED_VERSION to everyone."""
    asked: list[object] = []
    levels = {**dict.fromkeys(APIS, 1), feature: 0}
    request: Any = request_class(key)()
    if hasattr(request, "group_id"):
        request.group_id = "g"
    assert guard_of(key)(context(key, levels, asked), request) is None
    assert asked == []
