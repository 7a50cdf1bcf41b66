"""Restarts after failures, and the figures of a progress report."""

from __future__ import annotations

import traceback
from functools import partial

import pytest

from ottla.clients.cluster_reader import OLD_OFFSETS, TopicRecreated
from ottla.spark.exactly_once import fenced
from ottla.streams import StreamsBuilder, StreamsConfig, StreamsException, log_and_continue
from ottla.streams.data.records import RawRecord
from ottla.streams.errors import FailedProcessingException
from ottla.streams.run.progress import Progress, read_progress
from ottla.streams.run.supervisor import is_final, reason, supervise
from ottla.testing import PipelineDriver


def test_pauses_grow_until_there_is_progress() -> None:
    """Twice as long after each failure; that a query runs for a while is no progress."""
    outcomes: list[int | Exception | None] = [
        OSError("a"), -1, OSError("b"), 7, OSError("c"), 7, OSError("d"), None,
    ]  # fmt: skip
    pauses: list[float] = []

    supervise(partial(_next_of, outcomes), pauses.append)
    assert pauses == [1.0, 2.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "error",
    [
        StreamsException("bad record"),
        RuntimeError(f"task failed: ottla.errors.base.KafkaError: {fenced('group')}"),
        RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log."),
        RuntimeError("Multiple streaming queries are concurrently using file:/c/offsets."),
        TopicRecreated("source", OLD_OFFSETS),
        RuntimeError("[CAST_INVALID_INPUT] the value 'x' SQLSTATE: 22018"),
    ],
)
def test_a_final_error_ends_the_application(error: Exception) -> None:
    """A restart would not help."""

    def run() -> int:
        raise error

    def pause(_: float) -> None:
        raise AssertionError("it is started again")

    with pytest.raises(type(error)):
        supervise(run, pause)


def test_a_race_that_is_lost_after_a_failure_is_run_once_more() -> None:
    """The micro-batch that failed may have fenced the other driver: both would end."""
    lost = RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.")
    outcomes: list[int | Exception | None] = [OSError("away"), lost, 5, None]
    pauses: list[float] = []
    supervise(partial(_next_of, outcomes), pauses.append)
    assert pauses == [1.0, 2.0]
    for between in (lost, 5):
        ends: list[int | Exception | None] = [OSError("away"), between, lost]
        with pytest.raises(RuntimeError, match="CONCURRENT"):
            supervise(partial(_next_of, ends), pauses.append)


def _next_of(outcomes: list[int | Exception | None]) -> int | None:
    outcome = outcomes.pop(0)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def test_a_sink_topic_that_was_created_again_is_no_final_error() -> None:
    """The next run writes to the new one; only offsets of a source mean nothing in it."""
    error = TopicRecreated("sink", "the records of this write were for the old one; run the query")
    assert not is_final(error)


def test_what_to_do_is_said_of_errors_that_are_not_ours() -> None:
    """In one line: Java's text, which says what happened, and our next step."""
    full = reason(RuntimeError("No space left on device SQLSTATE: XXKST\n\tat java"))
    assert full.startswith("No space left on device SQLSTATE: XXKST; the disk")
    assert "\n" not in full
    assert "one after the other" in reason(RuntimeError("Python worker failed to connect back."))
    assert reason(RuntimeError("ours; next step")) == "ours; next step"
    for text in (
        "CONCURRENT_STREAM_LOG_UPDATE",
        "Multiple streaming queries are concurrently using",
    ):
        assert "another driver runs this query on the same checkpoint" in reason(RuntimeError(text))


def test_the_error_of_a_task_is_named() -> None:
    """Spark's first line says only that a task has failed."""
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage "
        "failure: Task 0 in stage 3.0 failed 1 times: org.apache.spark.api.python.PythonException: "
        '\nTraceback (most recent call last):\n  File "worker.py", line 1, in main\n'
        "ottla.errors.KafkaError: there is no topic 'out'; create it\n\n\tat java"
    )
    assert reason(RuntimeError(text)) == "there is no topic 'out'; create it"


def test_the_place_of_a_bad_record_is_named() -> None:
    """Python writes the error of the serde first, which knows neither topic nor offset."""
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with (
        PipelineDriver(builder.build()) as driver,
        pytest.raises(FailedProcessingException) as failed,
    ):
        driver.pipe_raw(RawRecord("in", None, b"no json", 7))
    text = "".join(traceback.format_exception(failed.value))
    line = reason(RuntimeError(f"[STREAM_FAILED] PythonException: \n{text}\n\n\tat java"))
    assert "topic=in, partition=0, offset=0: SerializationException: the json serde" in line


def test_a_skipped_record_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """By where it was, as the line of one that fails."""
    builder = StreamsBuilder(StreamsConfig(deserialization_exception_handler=log_and_continue))
    builder.stream("in").to("out")
    with PipelineDriver(builder.build()) as driver:
        driver.pipe_raw(RawRecord("in", None, b"no json", 7))
    assert "topic=in, partition=0, offset=0: the json serde" in caplog.text


def test_restarts_are_limited() -> None:
    """The last error is raised."""
    calls: list[int] = []

    def run() -> bool:
        calls.append(1)
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        supervise(run, lambda _: None, restarts=2)
    assert len(calls) == 3


def test_progress_has_the_lag_of_all_sources() -> None:
    """Offsets that the micro-batch's end is short of."""
    report = {
        "batchId": 3,
        "numInputRows": 10,
        "processedRowsPerSecond": 2.5,
        "durationMs": {"triggerExecution": 40},
        "stateOperators": [{"numRowsTotal": 7}],
        "sources": [
            {
                "endOffset": {"t": {"0": 5, "1": 2, "id": "x"}},
                "latestOffset": {"t": {"0": 8, "1": 2, "id": "x"}},
            }
        ],
    }
    assert read_progress(report) == Progress(3, 10, 2.5, 3, 7, 40)


def test_a_full_disk_is_named_where_only_the_jvm_s_trace_says_so() -> None:
    """Spark's own text may only say that a commit was not possible."""
    error = RuntimeError("Cannot perform commit during state checkpoint.")
    error._stackTrace = "at org.apache\nCaused by: java.io.IOException: No space left on device"  # type: ignore[attr-defined] # as PySpark's errors have it
    line = reason(error)
    assert line.startswith("No space left on device: Cannot perform commit during state checkpoint")
    assert line.endswith("nothing is lost or written twice")


@pytest.mark.parametrize(
    "text",
    [
        "ottla.errors.base.KafkaError: there is no topic 'a'",
        "PicklingError: Could not serialize object: InvalidConfigError: there is no topic 'a'",
    ],
)
def test_an_error_within_that_of_spark_is_its_line(text: str) -> None:
    """What the sink raises before a batch passes through the pickling of its writer."""
    error = RuntimeError(f"[STREAM_FAILED] Query [id = 1] terminated: {text}\n SQLSTATE: 38000")
    assert reason(error) == "there is no topic 'a'"


def test_an_error_of_java_is_its_own_line() -> None:
    """Py4j's text begins with the name of a call."""
    text = "An error occurred while calling o1.start.\n: java.io.IOException: no host\n\tat java"
    assert reason(RuntimeError(text)) == "java.io.IOException: no host"


def test_an_error_in_the_stack_trace_of_java_is_its_line() -> None:
    """Spark's own text of a write that failed has no cause."""
    error = RuntimeError("[STREAM_FAILED] Query terminated: Writing job failed. SQLSTATE: XXKST")
    cause = "Caused by: org.apache.spark.SparkException: ottla.errors.base.KafkaError: no node"
    error._stackTrace = f"org.apache.spark.SparkException\n\tat java\n{cause}\n\tat java"  # type: ignore[attr-defined]
    assert reason(error) == "no node"
