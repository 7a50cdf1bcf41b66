"""The verifiable tools on scripted clients: events, order, signals."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.cli.verify.events import EventWriter, StopRequest
from ottla.cli.verify.verifiable_consumer import VerifiableConsumerRun
from ottla.cli.verify.verifiable_producer import VerifiableProducerRun, _keys, _timestamps
from ottla.errors import ErrorCode, KafkaError
from ottla.records.record import Record
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

HALF = TopicPartition("t", 0)


def reported(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the events that were written, without their times."""
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [{name: one for name, one in event.items() if name != "timestamp"} for event in found]


class FakeProducer:
    """Acknowledges records, except that value 1 fails and value 2 cannot be sent."""

    def send(
        self, topic: str, value: bytes, _key: Any, *, on_delivery: Callable[[Any], None], **_: Any
    ) -> None:
        """Acknowledge at once."""
        if value == b"2":
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone") if value == b"1" else None
        place = SimpleNamespace(topic=topic, partition=0, offset=int(value))
        on_delivery(SimpleNamespace(error=error, metadata=place))


def test_a_producer_tells_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """Successes, failures and the summary have Kafka's names and fields."""
    flags = {
        "topic": "t",
        "throughput": -1,
        "repeating_keys": None,
        "message_create_time": -1,
        "max_messages": 3,
        "value_prefix": None,
    }
    producer: Any = FakeProducer()
    run = VerifiableProducerRun(producer, EventWriter(), flags)
    run.send_all(StopRequest())
    run.sum_up(0.5)
    started, sent, failed, refused, summed = reported(capsys)
    assert started == {"name": "startup_complete"}
    assert sent == {
        "name": "producer_send_success",
        "key": None,
        "value": "0",
        "offset": 0,
        "topic": "t",
        "partition": 0,
    }
    assert failed["exception"].endswith("NotLeaderOrFollowerException")
    assert refused["exception"].endswith("RecordTooLargeException")
    assert summed == {
        "name": "tool_data",
        "sent": 3,
        "acked": 1,
        "target_throughput": -1,
        "avg_throughput": 2.0,
    }


def test_keys_and_times() -> None:
    """Keys repeat after the given count; without flags there are none."""
    keys = _keys(2)
    assert [next(keys) for _ in range(3)] == ["0", "1", "0"]
    assert next(_keys(None)) is None
    assert next(_timestamps(-1)) is None
    stamps = _timestamps(500)
    assert next(stamps) == 500
    assert (next(stamps) or 0) >= 500


def test_a_signal_stops_the_producer(capsys: pytest.CaptureFixture[str]) -> None:
    """The loop ends at the first signal; the status is the shell's code for it."""
    stop = StopRequest()
    stop._receive(signal.SIGTERM, None)
    flags = {"topic": "t", "throughput": 0, "max_messages": -1}
    flags |= {"repeating_keys": None, "message_create_time": -1, "value_prefix": None}
    producer: Any = FakeProducer()
    VerifiableProducerRun(producer, EventWriter(), flags).send_all(stop)
    assert reported(capsys) == [{"name": "startup_complete"}]
    assert stop.status == 143


class FakeConsumer:
    """Returns four records of a partition in two batches; the commit can fail."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.error = error
        self.committed: list[Any] = []

    def subscribe(self, _topics: list[str], *, listener: Any) -> None:
        """Assign at once."""
        listener.on_partitions_assigned((HALF,))

    def poll_batches(self, _timeout: float) -> list[tuple[TopicPartition, list[Record]]]:
        """Return four records."""
        records = [Record(at, 0, None, b"v%d" % at) for at in range(5, 9)]
        return [(HALF, records[:2]), (HALF, records[2:])]

    def commit(self, offsets: Any) -> None:
        """Record the offsets, or fail."""
        if self.error is not None:
            raise self.error
        self.committed.append(offsets)


def consume(consumer: Any, **flags: Any) -> VerifiableConsumerRun:
    """Run to the end."""
    given = {"topic": "t", "max_messages": 3, "verbose": False, "enable_autocommit": False}
    run = VerifiableConsumerRun(consumer, EventWriter(), {**given, **flags})
    run.read_all(StopRequest())
    return run


def test_a_consumer_tells_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """Only --max-messages records are reported and committed; a poll is counted completely."""
    consumer = FakeConsumer()
    consume(consumer, verbose=True)
    events = reported(capsys)
    assert [event["name"] for event in events] == [
        "startup_complete",
        "partitions_assigned",
        *["record_data"] * 3,
        "records_consumed",
        "offsets_committed",
    ]
    assert events[2]["value"] == "v5"
    assert events[5]["count"] == 4
    summary = {"topic": "t", "partition": 0, "count": 3, "minOffset": 5, "maxOffset": 7}
    assert events[5]["partitions"] == [summary]
    assert consumer.committed == [{HALF: 8}]


def test_a_commit_that_fails_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The run goes on; the event has the error."""
    consume(FakeConsumer(KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "wait")))
    committed = next(event for event in reported(capsys) if event["name"] == "offsets_committed")
    assert (committed["success"], committed["error"]) == (False, "wait")


def test_autocommit_tells_no_commits(capsys: pytest.CaptureFixture[str]) -> None:
    """Automatic commits are not reported."""
    consume(FakeConsumer(), enable_autocommit=True)
    assert "offsets_committed" not in [event["name"] for event in reported(capsys)]
