"""Rates, throttle times and buckets on a simulated clock.

The figures are those that Kafka's classes give for the same events, as
tests/conformance/answers/test_quota_figures.py shows for thousands more.
"""

from __future__ import annotations

import math

import pytest

from ottla.config.broker import parse_broker_config
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.sampled_stat import SampledStat, SampleWindow
from ottla.quota import meters
from ottla.quota.connections import ConnectionRates, plain_address
from ottla.quota.quotas import Quotas
from ottla.quota.rates import MutationQuota, RateQuota
from ottla.server.node.settings import development_defaults

WINDOW = SampleWindow(11, 1000)
START_MS = 5_000_000
ANN_APP = (("client-id", "app"), ("user", "ann"))
ANYBODY = (("user", None),)


def _limited(limit: float, *, max_throttle_ms: int = 2**31 - 1) -> RateQuota:
    quota = RateQuota(WINDOW, max_throttle_ms=max_throttle_ms)
    quota.set_limit(ANN_APP, limit)
    return quota


def test_a_young_rate_is_measured_over_ten_samples() -> None:
    """A burst counts as if ten idle seconds had preceded it."""
    rate = SampledStat(WINDOW)
    rate.record(1000, START_MS)
    assert rate.rate(START_MS) == 100.0
    assert rate.window_ms(START_MS) == 10_000
    assert rate.rate(START_MS + 1500) == pytest.approx(1000 / 10.5)


def test_old_samples_leave_the_window() -> None:
    """A sample counts until eleven seconds after its last event."""
    rate = SampledStat(WINDOW)
    rate.record(1000, START_MS)
    rate.record(1000, START_MS + 5000)
    assert rate.rate(START_MS + 10_999) == pytest.approx(2000 / 10.999)
    assert rate.rate(START_MS + 11_000) == pytest.approx(1000 / 10)
    assert rate.rate(START_MS + 16_000) == 0


def test_the_throttle_time_brings_the_mean_down_to_the_limit() -> None:
    """20,000 bytes at once against 1000 a second: 2000 a second over 10 s, so 10 s of silence."""
    quota = _limited(1000)
    assert quota.record("ann", "app", 10_000, START_MS) == 0
    assert quota.record("ann", "app", 10_000, START_MS) == 10_000
    assert quota.record("ann", "app", 0, START_MS + 11_000) == 0


def test_the_throttle_time_of_the_request_quota_is_one_sample_at_most() -> None:
    """Kafka bounds it, because the time of a request is known only after it."""
    assert _limited(1, max_throttle_ms=1000).record("ann", "app", 100, START_MS) == 1000


def test_what_was_not_sent_is_taken_back() -> None:
    """An empty response must not count as the full one that it replaces."""
    quota = _limited(1000)
    assert quota.record("ann", "app", 20_000, START_MS) > 0
    quota.record_unthrottled("ann", "app", -20_000, START_MS)
    assert quota.record("ann", "app", 10_000, START_MS) == 0


def test_others_are_neither_measured_nor_held() -> None:
    """A client without a limit has no meter."""
    quota = _limited(1)
    assert quota.record("bob", "app", 1e9, START_MS) == 0
    assert quota.max_in_window("bob", "app", START_MS) == math.inf
    assert quota.max_in_window("ann", "app", START_MS) == 10.0


def test_a_changed_limit_keeps_what_was_measured() -> None:
    """Lowering it throttles the client at once, raising it ends that at once."""
    quota = _limited(1000)
    assert quota.record("ann", "app", 10_000, START_MS) == 0
    quota.set_limit(ANN_APP, 500.0)
    assert quota.record("ann", "app", 0, START_MS) == 10_000
    quota.set_limit(ANN_APP, 5000.0)
    assert quota.record("ann", "app", 0, START_MS) == 0


def test_clients_of_a_user_share_its_limit() -> None:
    """Two client ids of one user add up; another user has as much of its own."""
    quota = RateQuota(WINDOW)
    quota.set_limit(ANYBODY, 1000)
    assert quota.record("ann", "one", 10_000, START_MS) == 0
    assert quota.record("ann", "two", 10_000, START_MS) == 10_000
    assert quota.record("bob", "one", 10_000, START_MS) == 0


def test_meters_are_forgotten_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an idle hour a meter is removed; beyond the maximum new clients share one."""
    monkeypatch.setattr(meters, "MAX_METERS", 3)
    table = meters.Meters(lambda: SampledStat(WINDOW))
    table.set_limit((("client-id", None),), 10)
    first = [table.find("ann", f"client-{number}", START_MS) for number in range(6)]
    assert len(table) == 4
    assert first[3] is first[4] is first[5] is not first[2]
    table.find("ann", "late", START_MS + meters.IDLE_MS + 1)
    assert len(table) == 1


def test_a_bucket_may_be_overdrawn_once() -> None:
    """It begins full (2/s over 11 s), may be overdrawn by one request, and then refuses."""
    quota = MutationQuota(WINDOW)
    quota.set_limit(ANN_APP, 2)
    quota.permits_for("ann", "app", START_MS, is_strict=True).record(30)
    permits = quota.permits_for("ann", "app", START_MS, is_strict=True)
    with pytest.raises(KafkaError) as refused:
        permits.record(1)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert permits.throttle_time_ms(START_MS) == 4000  # 22 - 30 = -8 tokens at 2 a second
    assert permits.throttle_time_ms(START_MS + 1000) == 3000
    quota.permits_for("ann", "app", START_MS + 4000, is_strict=True).record(1)


def test_old_versions_are_throttled() -> None:
    """A request of a version without the error is executed and throttled."""
    quota = MutationQuota(WINDOW)
    quota.set_limit(ANN_APP, 2)
    permits = quota.permits_for("ann", "app", START_MS, is_strict=False)
    permits.record(30)
    assert permits.throttle_time_ms(START_MS) == 4000
    permits.record(2)
    assert permits.throttle_time_ms(START_MS) == 5000


def test_without_a_mutation_limit_no_permits_are_taken() -> None:
    """The request is neither refused nor throttled."""
    permits = MutationQuota(WINDOW).permits_for("ann", "app", START_MS, is_strict=True)
    permits.record(10**9)
    assert permits.throttle_time_ms(START_MS) == 0


def test_an_address_over_its_rate_is_refused_and_not_counted() -> None:
    """Ten connections a window of ten seconds; the eleventh is refused until its end, uncounted."""
    rates = ConnectionRates(WINDOW)
    rates.set_limit((("ip", "10.0.0.1"),), 1.0)
    rates.set_limit((("ip", None),), 1000.0)
    assert [rates.refuse_ms("10.0.0.1", START_MS) for _ in range(10)] == [0] * 10
    assert [rates.refuse_ms("10.0.0.1", START_MS) for _ in range(3)] == [1000] * 3
    assert rates.refuse_ms("10.0.0.2", START_MS) == 0
    assert rates.refuse_ms("10.0.0.1", START_MS + 11_000) == 0
    rates.set_limit((("ip", "10.0.0.1"),), None)
    assert rates.refuse_ms("10.0.0.1", START_MS) == 0


def test_addresses_are_compared_as_addresses() -> None:
    """The long form of an IPv6 address in a quota is the short one of a peer."""
    rates = ConnectionRates(WINDOW)
    rates.set_limit((("ip", "0:0:0:0:0:0:0:1"),), 1.0)
    assert sum(rates.refuse_ms("::1", START_MS) > 0 for _ in range(20)) == 10


def test_an_ipv4_address_written_as_ipv6_is_limited() -> None:
    """Java reads `::ffff:1.2.3.4` as the IPv4 address, as which its connections are shown."""
    rates = ConnectionRates(WINDOW)
    rates.set_limit((("ip", "::ffff:1.2.3.4"),), 1.0)
    assert sum(rates.refuse_ms("1.2.3.4", START_MS) > 0 for _ in range(20)) == 10
    rates.set_limit((("ip", "::FFFF:1.2.3.4"),), None)
    assert rates.refuse_ms("1.2.3.4", START_MS) == 0
    assert plain_address(bytes(10) + b"\xff\xff\1\2\3\4") == "1.2.3.4"  # of an Envelope


def test_a_node_over_its_rate_waits() -> None:
    """The node's rate counts all listeners but the protected one; a listener may have its own."""
    rates = ConnectionRates(WINDOW, protected_listener="INNER")
    rates.set_node_limits(10, {"OUTER": 5})
    assert [rates.wait_ms("OUTER", START_MS) for _ in range(50)] == [0] * 50
    assert rates.wait_ms("OUTER", START_MS) == 200  # 51 in ten seconds, 5 a second
    assert rates.wait_ms("INNER", START_MS) == 0
    assert [rates.wait_ms("OTHER", START_MS) for _ in range(49)] == [0] * 49
    assert rates.wait_ms("OTHER", START_MS) == 100  # 101 on the node, 10 a second
    rates.set_node_limits(0, {})
    assert rates.wait_ms("OTHER", START_MS) == 1000


def test_only_those_with_a_limit_are_concerned() -> None:
    """Each key counts; every change invalidates the cached result."""
    quotas = Quotas(parse_broker_config(development_defaults()))
    assert not quotas.is_on
    for key in ("producer_byte_rate", "controller_mutation_rate"):
        quotas.update({ANN_APP: {key: 1.0}}, [ANN_APP])
        assert quotas.is_on
        assert quotas.concerns("ann", "app")
        assert not quotas.concerns("bob", "app")
    quotas.update({}, [ANN_APP])
    assert not quotas.is_on
    assert not quotas.concerns("ann", "app")


def test_a_stored_quota_of_a_hosts_name_limits_no_one() -> None:
    """Kafka stores such names; they are ignored, and later limits apply."""
    quotas = Quotas(parse_broker_config(development_defaults()))
    host, address = (("ip", "localhost"),), (("ip", "127.0.0.1"),)
    limits = {"connection_creation_rate": 1.0}
    quotas.update({host: limits, address: limits}, [host, address])
    assert quotas.connections.refuse_ms("127.0.0.1", START_MS) == 0
    assert any(quotas.connections.refuse_ms("127.0.0.1", START_MS) for _ in range(20))
    quotas.update({}, [host])
