"""Clients' metrics handed to real Kafka 4.3.0 and to Ottla: the same answers.

Kafka: org.apache.kafka.server.ClientMetricsManager.
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.apis.push_telemetry import PushTelemetryRequest
from ottla.types import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from tests.conformance.answers.test_configs import DELETE, METRICS, SET
from tests.conformance.pair import Conversation, Pair, Speaker, running_pair
from tests.controller.harness import incremental_change
from tests.server.node.receivers import Receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
JAVA = Path(__file__).parents[1] / "java" / "Receiver.java"
GET, PUSH = 71, 72


@pytest.fixture(scope="module")
def pair(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run both with a receiver, each in its language."""
    with running_pair(
        kafka,
        tmp_path_factory.mktemp("telemetry"),
        properties={"telemetry.max.bytes": "50000"},
        theirs={"metric.reporters": "Receiver"},
        ours={"metric.reporters": "tests.server.node.receivers.Receiver"},
        classes=kafka.compile(JAVA),
    ) as pair:
        yield pair


@pytest.fixture(scope="module")
def deaf(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Run both without a receiver."""
    with running_pair(kafka, tmp_path_factory.mktemp("deaf")) as pair:
        yield pair


def _advertised(answer: Any) -> set[int]:
    return {one.api_key for one in answer.api_keys} & {GET, PUSH}


def test_clients_are_told_only_where_somebody_listens(pair: Pair, deaf: Pair) -> None:
    """The two APIs are advertised with a receiver only, and answered without one too."""
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert [_advertised(one) for one in pair.ask(request, 4)] == [{GET, PUSH}] * 2
    assert [_advertised(one) for one in deaf.ask(request, 4)] == [set()] * 2
    with deaf.connected() as kept:
        _both_get(kept, ZERO_UUID)
        _both_push(kept, Uuid(b"d" * 16), [(b"", 0), (b"metrics", 0)])


def _get(instance_id: Uuid) -> GetTelemetrySubscriptionsRequest:
    return GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)


def _without_ids(answer: Any) -> tuple[Any, ...]:
    return (
        answer.error_code,
        answer.accepted_compression_types,
        answer.push_interval_ms,
        answer.telemetry_max_bytes,
        answer.delta_temporality,
        sorted(answer.requested_metrics),
        bool(answer.client_instance_id),
    )


def _both_get(pair: Pair, instance_id: Uuid) -> tuple[Any, Any]:
    theirs, ours = pair.ask(_get(instance_id))
    assert _without_ids(ours) == _without_ids(theirs)
    return theirs, ours


def test_subscriptions(pair: Pair) -> None:
    """None, one that matches, several with the shortest interval, all; questions too soon."""
    with pair.connected() as kept:
        _subscriptions(kept)


def _subscriptions(pair: Pair) -> None:
    theirs, ours = _both_get(pair, ZERO_UUID)
    assert theirs.client_instance_id != ours.client_instance_id
    instance = Uuid(b"s" * 16)
    _both_get(pair, instance)
    _both_get(pair, instance)
    matching = ("match", SET, "client_id=pa.*,client_source_address=127.0.0.1")
    others = ("match", SET, "client_id=unknown")
    by_id = ("match", SET, f"client_instance_id={instance}")
    metrics = ("metrics", SET, "org.apache.kafka.,other.")
    for settings in (
        incremental_change(METRICS, "one", metrics, ("interval.ms", SET, "2000"), matching),
        incremental_change(
            METRICS, "two", ("metrics", SET, "two."), ("interval.ms", SET, "1500"), by_id
        ),
        incremental_change(
            METRICS, "three", ("metrics", SET, "not."), ("interval.ms", SET, "100"), others
        ),
        incremental_change(METRICS, "all", ("metrics", SET, "*"), matching),
    ):
        pair.compare(settings)
        _both_get(pair, instance)
        _both_get(pair, instance)
    for name in ("one", "two", "three", "all"):
        gone = [(key, DELETE, None) for key in ("metrics", "interval.ms", "match")]
        pair.compare(incremental_change(METRICS, name, *gone))
        _both_get(pair, instance)


def _push(
    speaker: Speaker | Conversation, instance: Uuid, metrics: bytes, codec: int, **changes: Any
) -> list[int]:
    """Push with the id that this broker gave; return the codes of question and push."""
    requested: Any = speaker.ask(_get(instance))
    request = PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=requested.subscription_id,
        terminating=False,
        compression_type=codec,
        metrics=metrics,
    )
    for name, value in changes.items():
        setattr(request, name, value)
    pushed: Any = speaker.ask(request)
    return [requested.error_code, pushed.error_code]


def _both_push(
    pair: Pair, instance: Uuid, messages: list[tuple[bytes, int]], **changes: Any
) -> None:
    for metrics, codec in messages:
        theirs = _push(pair.theirs, instance, metrics, codec, **changes)
        ours = _push(pair.ours, instance, metrics, codec, **changes)
        assert ours == theirs, (metrics[:20], codec, changes)


def _gzip(data: bytes) -> bytes:
    """Compress with no time of its own in the header: both test processes must collect the same."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("metrics", "codec"),
    [
        (b"plain", 0),
        (b"", 0),
        (b"boom", 0),
        (_gzip(b"small"), 1),
        (_gzip(b"boom"), 1),
        (b"no gzip", 1),
        (b"no zstd", 4),
        (b"plain", 9),
        (bytes(50_000), 0),
        (bytes(50_001), 0),
        (_gzip(bytes(100_000)), 1),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_pushes(pair: Pair, metrics: bytes, codec: int) -> None:
    """Plain, compressed, broken, too large, unknown codecs, a failing receiver; then again."""
    instance = Uuid(f"{codec}{len(metrics):05d}".encode() + bytes(metrics[:10]).ljust(10, b"."))
    with pair.connected() as kept:
        _both_push(kept, instance, [(metrics, codec), (b"plain", 0), (b"plain", 0)])


def test_pushes_out_of_order(pair: Pair) -> None:
    """Wrong subscription, reserved ids, too soon, termination and after it."""
    pushes = [(b"plain", 0)]
    with pair.connected() as kept:
        _both_push(kept, Uuid(b"1" * 16), pushes, subscription_id=7)
        _both_push(kept, Uuid(b"1" * 16), pushes)
        _both_push(kept, Uuid(b"2" * 16), pushes, client_instance_id=ZERO_UUID)
        _both_push(kept, Uuid(b"3" * 16), pushes, client_instance_id=METADATA_TOPIC_ID)
        _both_push(kept, Uuid(b"4" * 16), pushes * 3)
        _both_push(kept, Uuid(b"5" * 16), pushes, terminating=True)
        _both_push(kept, Uuid(b"5" * 16), pushes)
        _both_push(kept, Uuid(b"6" * 16), pushes)
        _both_push(kept, Uuid(b"6" * 16), pushes, terminating=True)
        _both_push(kept, Uuid(b"6" * 16), pushes, terminating=True)


def test_a_connection_that_ends_takes_its_client_along(pair: Pair) -> None:
    """Over a new connection a client is new: it need not wait for its interval."""
    instance = Uuid(b"7" * 16)
    with pair.connected() as kept:
        _both_get(kept, instance)
        _both_get(kept, instance)
    assert [_code_once_forgotten(one, instance) for one in (pair.theirs, pair.ours)] == [0, 0]


def _code_once_forgotten(speaker: Speaker | Conversation, instance: Uuid) -> int:
    """Ask over new connections: a broker that is busy hears late that the old one has ended."""
    deadline = time.monotonic() + 60
    while True:
        answer: Any = speaker.ask(_get(instance))
        code = int(answer.error_code)
        if code != ErrorCode.THROTTLING_QUOTA_EXCEEDED or time.monotonic() > deadline:
            return code
        time.sleep(0.05)


def test_kafkas_own_client_hands_in_its_metrics(pair: Pair) -> None:
    """A producer in Java asks what it should measure, and the receiver in Python gets it."""
    subscription = incremental_change(
        METRICS, "java", ("metrics", SET, "*"), ("interval.ms", SET, "200")
    )
    pair.compare(subscription)
    Receiver.received.clear()
    pair.real.kafka.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", pair.cluster.bootstrap, "--topic", "measured"),
        *("--num-records", "300", "--record-size", "10", "--throughput", "100"),
    )
    gone = [(key, DELETE, None) for key in ("metrics", "interval.ms")]
    pair.compare(incremental_change(METRICS, "java", *gone))
    context, payload = Receiver.received[-1]
    assert context.client_id == "perf-producer-client"
    assert context.client_software_name == "apache-kafka-java"
    assert b"org.apache.kafka.producer." in payload.data
