"""APIs of a feature that the cluster does not have are refused before rights are looked at."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from ottla.protocol.api_keys import ApiKey, request_class
from ottla.protocol.apis.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.server.requests.api import served_apis
from ottla.server.requests.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

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


def context(key: int, level: Callable[[str], int], asked: list[object]) -> Any:
    """Return the context of a client without rights; `asked` gets those that are looked at."""

    def authorize(*right: object) -> bool:
        asked.append(right)
        return False

    config = SimpleNamespace(group_coordinator_rebalance_protocols=["consumer", "streams"])
    features = SimpleNamespace(level=level)
    broker = SimpleNamespace(
        image=SimpleNamespace(features=features), metadata=SimpleNamespace(config=config)
    )
    return SimpleNamespace(
        api=served_apis()[key],
        api_key=key,
        api_version=1,
        authorize=authorize,
        broker=broker,
        quota_use=None,
    )


def request_of(key: int) -> Any:
    """Return a request of the API about a group."""
    request: Any = request_class(key)()
    if hasattr(request, "group_id"):
        request.group_id = "g"
    if hasattr(request, "group_ids"):
        request.group_ids = ["g"]
    if key == ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS:
        group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        request.groups = [group(group_id="g", topics=None)]
    return request


@pytest.mark.parametrize(
    ("feature", "key"), [(name, key) for name, keys in APIS.items() for key in keys]
)
def test_rights_come_after_the_feature(feature: str, key: int) -> None:
    """As in Kafka: the answer to everyone is UNSUPPORTED_VERSION."""
    asked: list[object] = []
    levels = {**dict.fromkeys(APIS, 1), feature: 0}
    api = served_apis()[key]
    ctx, request = context(key, levels.__getitem__, asked), request_of(key)
    assert api.right(ctx, request) is None
    try:
        response = api.handler(ctx, request)  # the handler alone, as on a node without authorizer
    except KafkaError as error:
        response = refused(request, error, 1)
    (refusal,) = getattr(response, "groups", [response])
    assert refusal.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert asked == []


@pytest.mark.parametrize("key", [key for keys in APIS.values() for key in keys])
def test_the_feature_is_looked_up_once(key: int) -> None:
    """Also where a guard calls that of another API."""
    looked_up: list[str] = []
    asked: list[object] = []

    def level(name: str) -> int:
        looked_up.append(name)
        return 1

    with suppress(KafkaError):
        served_apis()[key].right(context(key, level, asked), request_of(key))
    assert len(looked_up) == 1
