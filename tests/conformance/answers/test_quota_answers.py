"""Quotas altered and described on real Kafka 4.3.0 and on a node: the same answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.protocol import codec
from ottla.protocol.api_keys import ApiKey, response_class, response_header_version
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.frames import ResponseHeader, encode_request
from ottla.testing.cluster import Cluster
from tests.conformance.applied import wait_until_applied
from tests.conformance.kafka import exchange, join

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.schema import Request
    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Entity = dict[str, str | None]
Change = tuple[Entity, list[tuple[str, float | None]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run one node of ours."""
    with Cluster() as running:
        yield running


def _alter(*changes: Change, validate_only: bool = False) -> Request:
    struct = AlterClientQuotasRequest.EntryData
    entries = [
        struct(
            entity=[
                struct.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity.items()
            ],
            ops=[
                struct.OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in limits
            ],
        )
        for entity, limits in changes
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def _describe(*components: tuple[str, int, str | None], strict: bool = False) -> Request:
    struct = DescribeClientQuotasRequest.ComponentData
    return DescribeClientQuotasRequest(
        components=[
            struct(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )


def one_quota(key: str, value: float | None, **entity: str | None) -> Request:
    """Return the request that sets, or with None removes, one limit of an entity."""
    return _alter(({kind.replace("_", "-"): name for kind, name in entity.items()}, [(key, value)]))


BYTES, READ, SHARE = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
ALTERATIONS: list[Request] = [
    _alter(),
    _alter(({"user": "q"}, [])),
    _alter(({}, [(BYTES, 1.0)])),
    _alter(({"user": "q", "client-id": "c"}, [(BYTES, 10.0), (READ, 20.0), (SHARE, 12.5)])),
    _alter(
        ({"user": "q", "client-id": None}, [(MUTATIONS, 0.25)]), ({"user": None}, [(BYTES, 9.0)])
    ),
    _alter(({"user": "q"}, [(BYTES, 1.0)]), ({"user": "q"}, [(READ, 2.0)])),
    _alter(({"user": "q"}, [(BYTES, 3.0), (BYTES, 4.0)])),
    _alter(({"client-id": "c", "user": None}, [(BYTES, 3.0), (BYTES, 4.0)])),
    _alter(({"user": "q"}, [(READ, 5.0), ("nosuch", 4.0)])),
    _alter(({"user": "trial"}, [(READ, 5.0)]), validate_only=True),
    _alter(({"user": "trial"}, [("nosuch", 5.0)]), validate_only=True),
    one_quota("", 1.0, user="q"),
    one_quota(CONNECTIONS, 1.0, user="q"),
    one_quota(BYTES, 1.0, ip="10.1.2.3"),
    one_quota(CONNECTIONS, 7.0, ip="10.1.2.3"),
    one_quota(CONNECTIONS, 7.0, ip="::1"),
    one_quota(CONNECTIONS, 80_000.0, ip=None),
    one_quota(CONNECTIONS, 8.0, ip=""),
    one_quota(CONNECTIONS, 1.0, ip="10.1.2.999"),
    one_quota(CONNECTIONS, 1.0, ip="no such host!"),
    one_quota(CONNECTIONS, 1.5, ip="10.1.2.3"),
    one_quota(CONNECTIONS, 2.0**31, ip="10.1.2.3"),
    _alter(({"ip": "10.1.2.3", "user": "q"}, [(CONNECTIONS, 1.0)])),
    one_quota(BYTES, 1.0, planet="mars"),
    one_quota(BYTES, 1.0, user=""),
    one_quota(BYTES, 1.0, client_id=""),
    one_quota(BYTES, 0.0, user="q"),
    one_quota(BYTES, -1.0, user="q"),
    one_quota(BYTES, 1.5, user="q"),
    one_quota(BYTES, 1.0000001, user="q"),
    one_quota(BYTES, 1.9999999, user="q"),
    one_quota(BYTES, 1e30, user="q"),
    one_quota(BYTES, float(2**63), user="q"),
    one_quota(SHARE, 1e30, user="q"),
    one_quota(SHARE, 1e-9, user="q"),
    one_quota(MUTATIONS, float("inf"), user="q"),
    one_quota(SHARE, None, user="q"),
    one_quota(SHARE, None, user="unknown"),
    one_quota("nosuch", None, user="q"),
    one_quota(CONNECTIONS, None, ip="::1"),
]
QUESTIONS: list[Request] = [
    _describe(),
    _describe(strict=True),
    _describe(("user", EXACT, "q")),
    _describe(("user", EXACT, "q"), strict=True),
    _describe(("user", DEFAULT, None)),
    _describe(("user", SPECIFIED, None)),
    _describe(("user", SPECIFIED, None), ("client-id", SPECIFIED, None)),
    _describe(("client-id", DEFAULT, None)),
    _describe(("ip", SPECIFIED, None)),
    _describe(("ip", DEFAULT, None), strict=True),
    _describe(("user", EXACT, "")),
    _describe(("", EXACT, "q")),
    _describe(("planet", EXACT, "mars")),
    _describe(("user", EXACT, None)),
    _describe(("user", DEFAULT, "q")),
    _describe(("user", SPECIFIED, "q")),
    _describe(("user", 3, None)),
    _describe(("user", -1, None)),
    _describe(("user", EXACT, "q"), ("user", DEFAULT, None)),
    _describe(("user", EXACT, "q"), ("ip", DEFAULT, None)),
    _describe(("ip", SPECIFIED, None), ("client-id", EXACT, "c")),
]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_altered_and_described_alike(
    real_kafka: RealKafka, cluster: Cluster, version: int
) -> None:
    """Valid and wrong requests in both versions; the order of entries means nothing."""
    port = int(cluster.bootstrap.rpartition(":")[2])
    for one in (real_kafka.port, port):
        clear_quotas(one)
    different = []
    for number, request in enumerate([*ALTERATIONS, *QUESTIONS]):
        if request is QUESTIONS[0]:
            wait_until_applied(partial(ask, real_kafka.port))
        theirs = _shown(ask(real_kafka.port, request, version))
        ours = _shown(ask(port, request, version))
        if theirs != ours:
            different.append(f"{number} {request!r}\n  Kafka {theirs}\n  Ottla {ours}")
    for one in (real_kafka.port, port):
        clear_quotas(one)
    assert not different, "\n".join(different)


def clear_quotas(port: int) -> None:
    """Remove all quotas: other tests share the node, and others left some."""
    wait_until_applied(partial(ask, port))
    while entries := ask(port, _describe(), 1).entries:
        changes: list[Change] = [
            (
                {part.entity_type: part.entity_name for part in entry.entity},
                [(value.key, None) for value in entry.values],
            )
            for entry in entries
        ]
        ask(port, _alter(*changes), 1)


def ask(port: int, request: Request, version: int, client_id: str = "test") -> Any:
    """Send one request on a connection of its own and return the answer."""
    frame = memoryview(exchange(port, join(encode_request(request, version, 1, client_id))))
    key = ApiKey(request.message_key)
    header_version = response_header_version(key, version)
    position = codec.decode_at(ResponseHeader, header_version, frame, 0)[1]
    answer, position = codec.decode_at(response_class(key), version, frame, position)
    assert position == len(frame)
    return answer


def _shown(answer: Any) -> Any:
    """Return an answer's content; entities, their parts and values sorted."""
    if answer.entries is None:
        return answer.error_code, answer.error_message, None
    entries = sorted(
        (
            sorted((part.entity_type, part.entity_name or "(default)") for part in entry.entity),
            sorted((one.key, one.value) for one in getattr(entry, "values", ())),
            getattr(entry, "error_code", 0),
            getattr(entry, "error_message", None),
        )
        for entry in answer.entries
    )
    return getattr(answer, "error_code", 0), getattr(answer, "error_message", None), entries
