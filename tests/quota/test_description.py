"""Filters of DescribeClientQuotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.describe_client_quotas import DescribeClientQuotasRequest
from ottla.server.handlers.quotas import DEFAULT, EXACT, SPECIFIED, describe_quotas

if TYPE_CHECKING:
    from ottla.metadata.resources import QuotaEntity

Component = tuple[str, int, str | None]

ALICE = (("user", "alice"),)
ALICE_APP = (("client-id", "app"), ("user", "alice"))
ANYBODY = (("user", None),)
ADDRESS = (("ip", "10.0.0.1"),)
STORED: dict[QuotaEntity, dict[str, float]] = {
    ALICE: {"producer_byte_rate": 1000.0},
    ALICE_APP: {"consumer_byte_rate": 2000.0},
    ANYBODY: {"request_percentage": 50.0},
    ADDRESS: {"connection_creation_rate": 5.0},
}


def _request(*components: Component, strict: bool = False) -> DescribeClientQuotasRequest:
    struct = DescribeClientQuotasRequest.ComponentData
    return DescribeClientQuotasRequest(
        components=[
            struct(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )


def _found(*components: Component, strict: bool = False) -> list[QuotaEntity]:
    entries = describe_quotas(STORED, _request(*components, strict=strict))
    return [tuple((part.entity_type, part.entity_name) for part in one.entity) for one in entries]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [ALICE, ALICE_APP, ANYBODY, ADDRESS]),
        ([], True, []),
        ([("user", EXACT, "alice")], False, [ALICE, ALICE_APP]),
        ([("user", EXACT, "alice")], True, [ALICE]),
        ([("user", DEFAULT, None)], False, [ANYBODY]),
        ([("user", SPECIFIED, None)], False, [ALICE, ALICE_APP, ANYBODY]),
        ([("user", SPECIFIED, None)], True, [ALICE, ANYBODY]),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "app")], True, [ALICE_APP]),
        ([("ip", SPECIFIED, None)], False, [ADDRESS]),
        ([("ip", EXACT, "10.0.0.2")], False, []),
    ],
)
def test_a_filter_selects(
    components: list[Component],
    strict: bool,  # noqa: FBT001 - a parameter of the table
    expected: list[QuotaEntity],
) -> None:
    """Named, default and any name; strict leaves out entities with further parts."""
    assert _found(*components, strict=strict) == expected


def test_an_entry_carries_its_limits() -> None:
    """Keys and values are those stored."""
    entry = describe_quotas(STORED, _request(("ip", EXACT, "10.0.0.1")))[0]
    assert [(one.key, one.value) for one in entry.values] == [("connection_creation_rate", 5.0)]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("planet", EXACT, "mars")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("ip", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    components: list[Component], code: ErrorCode
) -> None:
    """Each invalid filter has Kafka's code."""
    with pytest.raises(KafkaError) as caught:
        _found(*components)
    assert caught.value.code == code
