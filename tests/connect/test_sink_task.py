"""The loop of a sink task, on a consumer without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.connector import SinkTask
from ottla.connect.converters.primitive import SimpleHeaderConverter, StringConverter
from ottla.connect.errors import ConnectException, RetriableException
from ottla.connect.plugins import Plugins
from ottla.connect.runtime.pipeline import Converters, Pipeline, steps_of
from ottla.connect.runtime.sink_task import SinkContext, SinkLoop
from ottla.connect.runtime.state import ConnectorTaskId, TargetState
from ottla.connect.runtime.tasks import TaskControl
from ottla.connect.runtime.tolerance import DeadLetters, ErrorHandler, ErrorStage, Tolerance
from ottla.connect.transforms.records import Filter
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.connect.records import SinkRecord

TASK, PART = ConnectorTaskId("s", 0), TopicPartition("t", 0)


def consumed(offset: int, value: bytes = b"v") -> Any:
    """Return a record of the partition."""
    return SimpleNamespace(
        topic="t", partition=0, offset=offset, timestamp=-1, key=None, value=value, headers=()
    )


class FakeConsumer:
    """Gives what each step of a script returns; a step may rebalance."""

    def __init__(self) -> None:
        """Have one partition from the start."""
        self.assignment = frozenset({PART})
        self.paused: set[TopicPartition] = set()
        self.committed: list[dict[TopicPartition, int]] = []
        self.sought: list[tuple[TopicPartition, int]] = []
        self.steps: list[Callable[[], Sequence[Any]]] = []
        self.listener: Any = None

    def subscribe(self, _topics: Any = (), *, listener: Any, pattern: Any = None) -> None:
        """Assign the partition."""
        del pattern
        self.listener = listener
        listener.on_partitions_assigned((PART,))

    def poll(self, _: float) -> Sequence[Any]:
        """Take the next step."""
        return self.steps.pop(0)()

    def pause(self, *partitions: TopicPartition) -> None:
        """Note it."""
        self.paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Note it."""
        self.paused.difference_update(partitions)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note it."""
        self.committed.append(dict(offsets))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Note it."""
        self.sought.append((partition, offset))

    def wakeup(self) -> None:
        """Have no call to end."""

    def close(self) -> None:
        """Have nothing to close."""


class Refusing(SinkTask):
    """Refuses batches while it should, and keeps what it has taken."""

    def __init__(self) -> None:
        """Take all at first."""
        self.refuses, self.taken = False, list[Any]()
        self.on_put: Callable[[Sequence[SinkRecord]], None] = lambda _: None

    def start(self, config: Mapping[str, str]) -> None:
        """Need no settings."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take records, or refuse them."""
        if self.refuses:
            raise RetriableException("later")
        self.on_put(records)
        self.taken += [it.value for it in records]


class Letters:
    """The producer of dead letters: their deliveries are as `outcome` says."""

    def __init__(self, outcome: Exception | None) -> None:
        """Take the error of each result, None for none."""
        self.outcome, self.sent = outcome, list[Any]()
        self.done = False

    def send(self, _topic: str, value: bytes, _key: bytes | None, **_: Any) -> Any:
        """Take a letter."""
        self.sent.append(value)
        return self

    def failure(self) -> Exception | None:
        """Return its error when it is done."""
        return self.outcome if self.done else None

    def result(self, _timeout_s: float) -> None:
        """Wait for it."""
        self.done = not isinstance(self.outcome, TimeoutError)
        if self.outcome is not None:
            raise self.outcome


def loop_of(
    task: Refusing,
    consumer: FakeConsumer,
    letters: Any = None,
    config: Mapping[str, str] | None = None,
    commit_interval_s: float = 0,
) -> tuple[Callable[[], None], TaskControl]:
    """Return what runs the task, and its control."""
    control = TaskControl(TASK, TargetState.STARTED, lambda _state, _trace: None)
    dead = None if letters is None else DeadLetters(letters, "dead", with_context=False)
    handler = ErrorHandler(
        TASK,
        Tolerance(tolerates_all=True),
        now_s=control.now_s,
        wait=control.wait,
        dead_letters=dead,
    )
    key, value = StringConverter(), StringConverter()
    key.configure({}, is_key=True)
    value.configure({}, is_key=False)
    steps = steps_of(Plugins(), config or {})
    context = SinkContext({}, consumer, handler)  # type: ignore[arg-type] # what it uses
    task.context = context
    loop = SinkLoop(
        control,
        task,
        Pipeline(steps, Converters(key, value, SimpleHeaderConverter()), handler),
        consumer=consumer,  # type: ignore[arg-type] # what it uses
        context=context,
        commit_interval_s=commit_interval_s,
        use_topic=lambda _: None,
    )
    return lambda: loop.run({}, ["t"], None), control


def test_a_refused_batch_whose_partition_was_taken_away_stops_nothing() -> None:
    """The partition comes back, and its records go on."""
    task, consumer = Refusing(), FakeConsumer()
    run, control = loop_of(task, consumer)

    def refuse() -> Sequence[Any]:
        task.refuses = True
        return [consumed(0)]

    def rebalance() -> Sequence[Any]:
        task.refuses = False
        consumer.listener.on_partitions_revoked((PART,))
        consumer.listener.on_partitions_assigned((PART,))
        return []

    def again() -> Sequence[Any]:
        assert not consumer.paused
        control.stop()
        return [consumed(0)]

    consumer.steps = [refuse, rebalance, again]
    run()
    assert task.taken == ["v"]
    assert consumer.committed == [{PART: 1}]


@pytest.mark.parametrize("outcome", [ConnectException("too large"), TimeoutError()])
def test_no_offset_is_stored_before_its_dead_letter(outcome: Exception) -> None:
    """A letter that cannot be written fails the task; one that takes long is waited for."""
    task, consumer, letters = Refusing(), FakeConsumer(), Letters(outcome)
    run, control = loop_of(task, consumer, letters)

    def report(records: Sequence[SinkRecord]) -> None:
        for record in records:
            task.context.report_errant(record, ValueError("bad"))

    def last() -> Sequence[Any]:
        assert consumer.committed == []
        letters.outcome = None
        letters.done = True
        control.stop()
        return []

    task.on_put = report
    consumer.steps = [lambda: [consumed(0, b"errant")], last]
    if isinstance(outcome, TimeoutError):
        run()
        assert consumer.committed == [{PART: 1}]
    else:
        with pytest.raises(ConnectException, match="dead letter"):
            run()
        assert consumer.committed == []
    assert letters.sent == [b"errant"]


def test_a_record_of_an_earlier_batch_can_be_reported() -> None:
    """Sinks that keep records report them when they write."""
    task, consumer, letters = Refusing(), FakeConsumer(), Letters(None)
    run, control = loop_of(task, consumer, letters)
    kept: list[SinkRecord] = []

    def report(records: Sequence[SinkRecord]) -> None:
        for record in kept:
            task.context.report_errant(record, ValueError("bad"))
        kept[:] = records

    def last() -> Sequence[Any]:
        control.stop()
        return [consumed(1, b"second")]

    task.on_put = report
    consumer.steps = [lambda: [consumed(0, b"first")], last]
    run()
    assert letters.sent == [b"first"]


class Flushing(Refusing):
    """Writes what it keeps in `flush`, which fails as often as a script says."""

    def __init__(self) -> None:
        """Fail never at first."""
        super().__init__()
        self.failures, self.written = 0, list[Any]()

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write all, or lose it and fail."""
        del offsets
        kept, self.taken = self.taken, []
        if self.failures:
            self.failures -= 1
            raise ValueError("the database restarts")
        self.written += kept


def test_a_flush_that_fails_goes_back_to_the_last_commit(caplog: pytest.LogCaptureFixture) -> None:
    """Before the first commit to the first record, then to the commit; nothing fails the task."""
    task, consumer = Flushing(), FakeConsumer()
    run, control = loop_of(task, consumer)

    def read(offset: int, failures: int = 0) -> Callable[[], Sequence[Any]]:
        def step() -> Sequence[Any]:
            task.failures = failures
            return [consumed(offset, str(offset).encode())]

        return step

    def last() -> Sequence[Any]:
        control.stop()
        return read(9)()

    consumer.steps = [read(7, 1), read(7), read(8, 1), read(8), last]
    run()
    assert consumer.sought == [(PART, 7), (PART, 8)]
    assert consumer.committed == [{PART: 8}, {PART: 9}, {PART: 10}]
    assert task.written == ["7", "8", "9"]
    assert caplog.text.count("rewinding to last committed offsets") == 2
    assert commit_failures(control) == 0.4


def commit_failures(control: TaskControl) -> Any:
    """Return the share of commits that failed."""
    bean = control.metrics.beans(TASK, "running")[0]
    return bean.attributes["offset-commit-failure-percentage"]


def test_a_flush_that_fails_at_the_end_commits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever reads the partitions next begins at the last commit."""
    task, consumer = Flushing(), FakeConsumer()
    run, control = loop_of(task, consumer, commit_interval_s=60)

    def last() -> Sequence[Any]:
        control.stop()
        return [consumed(0)]

    task.failures = 1
    consumer.steps = [last]
    run()
    assert (consumer.committed, task.written) == ([], [])
    assert "Offset commit failed during close" in caplog.text
    assert commit_failures(control) == 1


class Ending(Refusing):
    """Fails in `put` of bad records, and in all that follows."""

    has_failed = False

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Fail for a bad record."""
        self.has_failed = any(it.value == "bad" for it in records)
        if self.has_failed:
            raise ValueError("the database is gone")

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Fail after `put` has."""
        del offsets
        if self.has_failed:
            raise ValueError("no connection")

    def stop(self) -> None:
        """Fail."""
        raise AttributeError("_connection")


def test_the_failure_of_a_task_is_not_that_of_its_end() -> None:
    """Its trace says why it failed, not which call of its end did after that."""
    task, consumer = Ending(), FakeConsumer()
    run, _ = loop_of(task, consumer)
    consumer.steps = [lambda: [consumed(0)], lambda: [consumed(1, b"bad")]]
    with pytest.raises(ConnectException, match="Exiting WorkerSinkTask"):
        run()
    assert consumer.committed == [{PART: 1}]


def test_a_stop_that_fails_fails_no_task(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, it is logged, and the transforms are closed."""
    task, consumer = Ending(), FakeConsumer()
    closed: list[Any] = []

    def close(step: Filter) -> None:
        closed.append(step)
        raise ValueError("no thread")

    config = {
        "transforms": "a,b",
        "transforms.a.type": "Filter",
        "transforms.b.type": "Filter",
        "transforms.a.predicate": "p",
        "transforms.b.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "RecordIsTombstone",
    }
    run, control = loop_of(task, consumer, config=config)

    def last() -> Sequence[Any]:
        control.stop()
        return []

    consumer.steps = [last]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Filter, "close", close)
        run()
    assert len(closed) == 2
    assert "stopping the task failed" in caplog.text


def test_a_predicate_that_does_not_exist_is_not_left_out() -> None:
    """The filter would drop every record."""
    config = {
        "transforms": "drop",
        "transforms.drop.type": "Filter",
        "transforms.drop.predicate": "tombstone",
        "predicates": "tombstones",
        "predicates.tombstones.type": "RecordIsTombstone",
    }
    with pytest.raises(ConnectException, match="no predicate tombstone"):
        steps_of(Plugins(), config)


def test_a_stop_during_repetitions_passes_no_record() -> None:
    """Tolerated errors are passed when their time is over, not when the task stops."""
    control = TaskControl(TASK, TargetState.STARTED, lambda _state, _trace: None)
    tolerance = Tolerance(tolerates_all=True, retry_timeout_ms=-1)
    handler = ErrorHandler(TASK, tolerance, now_s=control.now_s, wait=control.wait)

    def step() -> None:
        control.stop()
        raise RetriableException("the registry is away")

    with pytest.raises(ConnectException, match="stops"):
        handler.run(ErrorStage.VALUE_CONVERTER, object(), step)
