"""What clients with a quota use, as series."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.config.broker import parse_broker_config
from ottla.metadata.resources import PRODUCER_BYTE_RATE
from ottla.quota.meters import IDLE_MS
from ottla.quota.quotas import Quotas
from ottla.server.metrics.requests import QuotaMetrics
from ottla.server.node.settings import development_defaults

NOW_MS = 5_000_000


def shown(quotas: Quotas, now_ms: int) -> dict[str, dict[str, Any]]:
    """Return values by label, by name."""
    clock: Any = SimpleNamespace(monotonic_ms=lambda: now_ms)
    return {
        series.family.classic: dict(zip(series.labels, series.values, strict=True))
        for series in QuotaMetrics(quotas, clock).collect()
        if series is not None
    }


def limited() -> Quotas:
    """Return quotas with a limit of 1000 bytes a second for each user."""
    quotas = Quotas(parse_broker_config(development_defaults()))
    entity = (("user", None),)
    quotas.update({entity: {PRODUCER_BYTE_RATE: 1000.0}}, [entity])
    return quotas


def test_no_one_is_limited() -> None:
    """Without a quota there is no series."""
    assert shown(Quotas(parse_broker_config(development_defaults())), NOW_MS) == {}


def test_a_throttled_client_is_told() -> None:
    """Its rate, and the mean of its pauses, until they are older than the window."""
    quotas = limited()
    assert quotas.produced.record("ann", "app", 5_000, NOW_MS) == 0
    pause_ms = quotas.produced.record("ann", "app", 15_000, NOW_MS)
    assert pause_ms == 10_000
    told = shown(quotas, NOW_MS)
    ann = '{user="ann",client_id=""}'
    assert told["kafka_server_produce_byte_rate"] == {ann: 2000.0}
    assert told["kafka_server_produce_throttle_time"] == {ann: 10_000.0}
    later = shown(quotas, NOW_MS + 60_000)
    assert later["kafka_server_produce_throttle_time"] == {ann: 0.0}


def test_a_client_that_is_gone_is_forgotten() -> None:
    """An hour after its last request it has no series, whether or not others come."""
    quotas = limited()
    quotas.produced.record("ann", "app", 5_000, NOW_MS)
    assert shown(quotas, NOW_MS + IDLE_MS) != {}
    quotas.produced.record("bob", "app", 5_000, NOW_MS + IDLE_MS)
    told = shown(quotas, NOW_MS + IDLE_MS + 60_000)
    assert list(told["kafka_server_produce_byte_rate"]) == ['{user="bob",client_id=""}']
