"""Clients' metrics: who is asked for which, how often, and that the receiver gets them."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image.image import MetadataImage
from ottla.metadata.resources import ConfiguredResource
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.apis.push_telemetry import PushTelemetryRequest
from ottla.server.broker.telemetry import MAX_INSTANCES, MAX_WAITING, Telemetry, TelemetryContext
from ottla.server.system.timers import SystemClock
from ottla.testing.cluster import Cluster
from ottla.types import ZERO_UUID, Uuid
from tests.server.node.receivers import Receiver, register
from tests.server.node.test_setting_answers import BROKER, METRICS, alter
from tests.server.requests.untrusted_clients import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator

RECEIVER = "tests.server.node.receivers.Receiver"
ME = Uuid(b"m" * 16)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Run a node with a receiver."""
    Receiver.received.clear()
    with Cluster(config={"metric.reporters": RECEIVER}) as cluster:
        yield cluster


def _get(peer: Peer, instance_id: Uuid = ME) -> Any:
    return peer.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def _push(peer: Peer, subscription_id: int, metrics: bytes, **fields: Any) -> int:
    values: dict[str, Any] = {
        "client_instance_id": ME,
        "subscription_id": subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": metrics,
        **fields,
    }
    code: int = peer.ask(PushTelemetryRequest(**values), 0).error_code
    return code


def _advertised(peer: Peer) -> set[int]:
    answer = peer.ask(ApiVersionsRequest(), 0)
    return {one.api_key for one in answer.api_keys} & {71, 72}


def test_a_receiver_gets_what_clients_measure(cluster: Cluster) -> None:
    """Metrics arrive decompressed, with the client's names and whether it terminates."""
    peer = Peer(cluster.bootstrap)
    hello = ApiVersionsRequest(client_software_name="probe", client_software_version="1.2")
    peer.ask(hello, 4)
    asked = _get(peer)
    assert (asked.error_code, asked.push_interval_ms) == (0, 300_000)
    assert asked.requested_metrics == []
    assert _push(peer, asked.subscription_id, gzip.compress(b"12 apples"), compression_type=1) == 0
    assert _push(peer, asked.subscription_id, b"bye", terminating=True) == 0
    (context, payload), (_, last) = Receiver.received
    assert (context.client_software_name, context.client_software_version) == ("probe", "1.2")
    assert (context.client_address, context.listener_name) == ("127.0.0.1", "PLAINTEXT")
    assert context.client_port == peer.sock.getsockname()[1]
    assert (payload.data, payload.is_terminating, payload.content_type) == (
        b"12 apples",
        False,
        "OTLP",
    )
    assert (last.data, last.is_terminating) == (b"bye", True)


def test_subscriptions_choose_clients_and_metrics(cluster: Cluster) -> None:
    """Matching subscriptions add up, the shortest interval counts, a change is reported at once."""
    peer = Peer(cluster.bootstrap)
    first = _get(peer)
    assert _get(peer).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    mine = {"metrics": "a.,b.", "interval.ms": "60000", "match": "client_id=te.t"}
    assert alter(peer, METRICS, "mine", **mine) == (0, None)
    assert alter(peer, METRICS, "other", metrics="c.", match="client_id=t") == (0, None)
    assert alter(peer, METRICS, "fast", **{"metrics": "d.", "interval.ms": "5000"}) == (0, None)
    changed = _get(peer)
    assert changed.requested_metrics == ["a.", "b.", "d."]
    assert changed.push_interval_ms == 5000
    assert changed.subscription_id != first.subscription_id
    assert _push(peer, first.subscription_id, b"x") == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert _get(peer).subscription_id == changed.subscription_id
    assert alter(peer, METRICS, "all", metrics="*") == (0, None)
    assert _get(peer).requested_metrics == ["*"]
    cluster.restart()
    assert _get(Peer(cluster.bootstrap)).requested_metrics == ["*"]


def test_what_is_refused(cluster: Cluster) -> None:
    """Too soon, too large, unknown codec, bad bytes, a failing receiver, after the last push."""
    peer = Peer(cluster.bootstrap)
    subscription_id = _get(peer).subscription_id
    too_large = bytes(1_048_577)
    cases: list[tuple[bytes, dict[str, Any], ErrorCode]] = [
        (b"x", {"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        (b"x", {}, ErrorCode.NONE),
        (b"x", {}, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
    ]
    for metrics, fields, code in cases:
        assert _push(peer, subscription_id, metrics, **fields) == code
    for metrics, fields, code in (
        (too_large, {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"x", {"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b"no gzip", {"compression_type": 1}, ErrorCode.INVALID_RECORD),
        (b"boom", {}, ErrorCode.INVALID_RECORD),
    ):
        other = Peer(cluster.bootstrap)
        instance = Uuid(bytes(metrics[:4]).ljust(16, b"o"))
        asked = _get(other, instance).subscription_id
        assert _push(other, asked, metrics, client_instance_id=instance, **fields) == code
    assert _push(peer, subscription_id, b"bye", terminating=True) == ErrorCode.NONE
    assert _push(peer, subscription_id, b"bye", terminating=True) == ErrorCode.INVALID_REQUEST


def test_a_step_of_the_clock_lets_no_one_push_early_or_late(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intervals are measured by a clock that does not step: after one back all would be refused."""
    peer = Peer(cluster.bootstrap)
    subscription_id = _get(peer).subscription_id
    assert _push(peer, subscription_id, b"x") == ErrorCode.NONE
    before_ms = SystemClock().now_ms()
    for step_ms in (3_600_000, -3_600_000):
        monkeypatch.setattr(SystemClock, "now_ms", lambda _, at_ms=before_ms + step_ms: at_ms)
        assert _push(peer, subscription_id, b"x") == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert _get(peer).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    other = Uuid(b"o" * 16)
    asked = _get(peer, other)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: before_ms - 7_200_000)
    assert _push(peer, asked.subscription_id, b"x", client_instance_id=other) == ErrorCode.NONE


def test_reporters_come_and_go_while_the_node_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are told of telemetry from when a receiver is configured until it is taken away."""
    register(monkeypatch, RECEIVER)
    before = Receiver.open_count
    with Cluster() as cluster:
        peer = Peer(cluster.bootstrap)
        assert _advertised(peer) == set()
        assert _get(peer).error_code == 0
        code, text = alter(peer, BROKER, "1", **{"metric.reporters": "org.acme.Reporter"})
        assert code == ErrorCode.INVALID_REQUEST
        assert "metric.reporters" in str(text)
        assert alter(peer, BROKER, "1", **{"metric.reporters": RECEIVER}) == (0, None)
        assert _advertised(peer) == {71, 72}
        assert Receiver.open_count == before + 1
        assert alter(peer, BROKER, "1", **{"metric.reporters": ""}) == (0, None)
        assert _advertised(peer) == set()
        assert Receiver.open_count == before


def test_a_slow_receiver_holds_only_so_many_messages() -> None:
    """What waits for a receiver is bounded; further ones are throttled."""
    jobs: list[Any] = []
    telemetry = Telemetry(1000, lambda run, done: jobs.append((run, done)))
    context = TelemetryContext("c", "127.0.0.1", 1, "s", "1", "PLAINTEXT")

    def push(number: int) -> ErrorCode:
        instance_id = Uuid(number.to_bytes(16, "big"))
        instance = telemetry.instance(instance_id, context, str(number))
        request = PushTelemetryRequest(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            terminating=False,
            compression_type=0,
            metrics=b"x",
        )
        try:
            telemetry.check_push(request, instance, now_ms=1_000_000)
        except KafkaError as error:
            return error.code
        telemetry.export(request, instance)
        return ErrorCode.NONE

    outcomes = [push(number) for number in range(2, MAX_WAITING + 4)]
    assert outcomes.count(ErrorCode.NONE) == MAX_WAITING == len(jobs)
    assert set(outcomes[MAX_WAITING:]) == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    run, done = jobs[0]
    run()
    done(None, None)
    assert push(1000) is ErrorCode.NONE


def changed(*names: str) -> Any:
    """Return a change of the settings of subscriptions."""
    resources = [ConfiguredResource(METRICS, name) for name in names]
    return SimpleNamespace(configs_changed=resources)


def test_of_an_attribute_named_twice_the_last_expression_counts() -> None:
    """As in Kafka: with both no client would match."""
    telemetry = Telemetry(1000, lambda run, done: None)
    image = MetadataImage()
    stored = {"match": "client_id=a,client_id=b", "metrics": "a."}
    image.configs.by_resource = {ConfiguredResource(METRICS, "twice"): stored}
    telemetry.metadata_changed(changed("twice"), image)
    found = {}
    for number, name in enumerate("ab"):
        context = TelemetryContext(name, "127.0.0.1", 1, "s", "1", "PLAINTEXT")
        found[name] = telemetry.instance(Uuid(bytes(15) + bytes([number])), context, name).metrics
    assert found == {"a": [], "b": ["a."]}


def test_clients_are_forgotten_in_the_end() -> None:
    """Only so many clients are remembered, and none whose connection has ended."""
    telemetry = Telemetry(1000, lambda run, done: None)
    context = TelemetryContext("c", "127.0.0.1", 1, "s", "1", "PLAINTEXT")
    for number in range(2, MAX_INSTANCES + 10):
        telemetry.instance(Uuid(number.to_bytes(16, "big")), context, str(number))
    assert len(telemetry._instances) == MAX_INSTANCES
    telemetry.connection_closed(str(MAX_INSTANCES))
    assert len(telemetry._instances) == MAX_INSTANCES - 1


def test_a_connection_may_speak_for_several_clients() -> None:
    """The second one does not make the first one new, and both end with the connection."""
    telemetry = Telemetry(1024, lambda job, done: None)
    context = TelemetryContext("c", "127.0.0.1", 1, "s", "1", "PLAINTEXT")
    first, second = Uuid(b"a" * 16), Uuid(b"b" * 16)

    instance = telemetry.instance(first, context, "connection")
    telemetry.instance(second, context, "connection")
    assert telemetry.instance(first, context, "another") is instance
    assert len(telemetry._instances) == 2

    telemetry.connection_closed("connection")
    assert not telemetry._instances
    assert not telemetry._by_connection
    telemetry.connection_closed("another")


@pytest.mark.parametrize(
    ("expression", "client_id"),
    [
        ("a{99999999999999999999}", "a"),
        ("(" * 5000, "a"),
        ("[a-z&&b", "b"),
        ("(a|aa)+[^a]", "a" * 90),  # it would take longer than there is time
    ],
)
def test_a_stored_subscription_that_cannot_be_told_matches_no_one(
    expression: str, client_id: str
) -> None:
    """Metadata and the loop go on, and others are asked as before."""
    telemetry = Telemetry(1000, lambda run, done: None)
    context = TelemetryContext(client_id, "127.0.0.1", 1, "s", "1", "PLAINTEXT")
    image = MetadataImage()
    stored = {"match": f"client_id={expression}", "metrics": "a."}
    image.configs.by_resource = {
        ConfiguredResource(METRICS, "foreign"): stored,
        ConfiguredResource(METRICS, "ours"): {"metrics": "b."},
    }
    telemetry.metadata_changed(changed("foreign", "ours"), image)
    assert telemetry.instance(ME, context, "1").metrics == ["b."]


def test_java_s_classes_of_characters_are_understood() -> None:
    """What Kafka took for a subscription is one here."""
    telemetry = Telemetry(1000, lambda run, done: None)
    context = TelemetryContext("app", "127.0.0.1", 1, "s", "1", "PLAINTEXT")
    image = MetadataImage()
    stored = {"match": r"client_id=\p{Alpha}+", "metrics": "a."}
    image.configs.by_resource = {ConfiguredResource(METRICS, "foreign"): stored}
    telemetry.metadata_changed(changed("foreign"), image)
    assert telemetry.instance(ME, context, "1").metrics == ["a."]
