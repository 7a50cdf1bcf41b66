"""Options of source and sink: the connector's names, and what is said about wrong ones."""

from __future__ import annotations

import sys

import pytest

import ottla.spark
import ottla.spark.jvm
from ottla.errors import KafkaError
from ottla.protocol.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.spark.options import read_options, write_options
from ottla.types import TopicPartition

SERVER = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        (SERVER, "give one of subscribe"),
        ({**SERVER, "subscribe": "t", "assign": '{"t":[0]}'}, "not subscribe and assign"),
        ({**SERVER, "subscribe": "t", "startingofsets": "x"}, "did you mean 'startingOffsets'"),
        ({**SERVER, "subcribe": "t"}, "did you mean 'subscribe'"),
        ({"bootstrap.servers": "a:1", "subscribe": "t"}, "'kafka.bootstrap.servers'"),
        ({**SERVER, "subscribe": "t", "kafka.fetch.max.byte": "1"}, "'kafka.fetch.max.bytes'"),
        ({**SERVER, "subscribe": "t", "failOnDataLoss": "maybe"}, "neither true nor false"),
        ({**SERVER, "subscribe": "t", "minPartitions": "0"}, "minPartitions: '0'"),
        ({**SERVER, "subscribe": "t", "startingOffsets": "latest"}, "latest is for streaming"),
        ({**SERVER, "subscribe": "t", "endingOffsets": "earliest"}, "every batch empty"),
        ({**SERVER, "subscribe": "t", "startingOffsets": "{]"}, "is not earliest, latest or JSON"),
        ({**SERVER, "assign": "t"}, 'is not JSON such as {"flights": [0, 1]}'),
        ({**SERVER, "assign": '{"t":"10"}'}, 'is not JSON such as {"flights": [0, 1]}'),
        ({**SERVER, "assign": '{"t":[1.5]}'}, "is not JSON such as"),
        ({**SERVER, "assign": '{"t":[]}'}, "is not JSON such as"),
        ({**SERVER, "subscribe": "t", "startingOffsets": '{"t":{"0":1e400}}'}, "or JSON"),
        ({**SERVER, "subscribe": "t", "startingOffsets": '{"t":{"0":2.5}}'}, "or JSON"),
        ({**SERVER, "subscribe": "t", "startingOffsets": '{"t":{"0":true}}'}, "or JSON"),
        ({**SERVER, "subscribe": "t", "endingOffsets": '{"t":{"0":9223372036854775808}}'}, "JSON"),
        ({**SERVER, "subscribePattern": "a("}, "is no pattern"),
        ({**SERVER, "subscribe": "t", "partitionLimits": '{"t":[1]}'}, "partitionLimits: '{"),
        ({**SERVER, "subscribe": "t", "partitionLimits": '{"(":[1,2]}'}, "partitionLimits: '{"),
        ({**SERVER, "subscribe": "t", "partitionLimits": '{"t":"same"}'}, "partitionLimits: '{"),
        ({**SERVER, "subscribe": "t", "partitionLimits": '{"t":[3,1]}'}, "no topic has 3 to 1"),
        ({**SERVER, "subscribe": "t", "partitionLimits": '{"t":[0,0]}'}, "no topic has 0 to 0"),
        ({**SERVER, "subscribe": "t", "partitionLimits": '{"t":[-2,1]}'}, "no topic has -2 to 1"),
        ({**SERVER, "subscribe": "t", "partitionLimits": '{"t":[1,2]}'}, "is for streaming"),
        ({**SERVER, "subscribe": "t", "skipDeletedTopics": "a("}, "skipDeletedTopics: 'a(' is no"),
        ({**SERVER, "subscribe": "t", "skipDeletedTopics": "t"}, "is for streaming"),
        ({**SERVER, "subscribe": "t", "columns": "key,vaule"}, "did you mean 'value'"),
        ({**SERVER, "subscribe": "t", "maxOffsetsPerTrigger": "5"}, "is for streaming queries"),
        ({**SERVER, "subscribe": "t", "kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({**SERVER, "subscribe": "t", "kafka.key.deserializer": "x"}, "cast the column"),
        ({**SERVER, "subscribe": "t", "kafka.fetch.min.bytes": "x"}, "fetch.min.bytes"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], words: str) -> None:
    """Each error says what to write instead."""
    with pytest.raises(KafkaError) as raised:
        read_options(options, streaming=False)
    assert words in str(raised.value)


def test_all_problems_are_told_at_once() -> None:
    """Two mistakes make one error with both."""
    with pytest.raises(KafkaError, match=r"kafka\.bootstrap.*subscribe|subscribe.*bootstrap"):
        read_options({"failOnDataLoss": "x", "subcribe": "t"}, streaming=True)


def test_defaults_differ_between_batch_and_streaming() -> None:
    """A batch starts at the earliest offset, a stream at the latest."""
    options = {**SERVER, "subscribe": "a, b,a"}
    assert read_options(options, streaming=False).starting.offsets == EARLIEST_TIMESTAMP
    assert read_options(options, streaming=True).starting.offsets == LATEST_TIMESTAMP
    assert read_options(options, streaming=True).selection.topics == ("a", "b")


def test_starting_offsets_may_be_a_progress_report() -> None:
    """The topic's id in an end offset of a progress report is passed over."""
    text = '{"t": {"id": "1bxTwBh1Q9mgz_gQdfpehA", "0": 5, "1": -2}}'
    read = read_options({**SERVER, "subscribe": "t", "startingOffsets": text}, streaming=True)
    assert read.starting.offsets == {
        TopicPartition("t", 0): 5,
        TopicPartition("t", 1): EARLIEST_TIMESTAMP,
    }


def test_timestamps_win_over_offsets() -> None:
    """StartingTimestamp is used before startingOffsets, as in the connector."""
    options = {**SERVER, "subscribe": "t", "startingTimestamp": "77", "startingOffsets": "earliest"}
    read = read_options(options, streaming=False)
    assert read.starting.is_timestamp
    assert read.starting.all_at_ms == 77


def test_a_stream_has_no_end() -> None:
    """An ending offset in a streaming query is refused."""
    with pytest.raises(KafkaError, match="a streaming query has no end"):
        read_options({**SERVER, "subscribe": "t", "endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("30s", 30_000), ("15m", 900_000), ("2 hours", 7_200_000), ("30000", 30_000),
        ("2min", 120_000), ("1 day", 86_400_000),
    ],
)  # fmt: skip
def test_durations(given: str, expected: int) -> None:
    """The longest delay of a trigger takes Spark's spellings."""
    options = {**SERVER, "subscribe": "t", "maxTriggerDelay": given}
    assert read_options(options, streaming=True).max_trigger_delay_ms == expected


def test_starting_at_a_group() -> None:
    """The committed offsets of a group that is named."""
    given = {**SERVER, "subscribe": "t", "startingOffsets": "group"}
    with pytest.raises(KafkaError, match="group needs"):
        read_options(given, streaming=True)
    options = read_options({**given, "kafka.group.id": "g"}, streaming=True)
    assert (options.starting.is_of_group, options.group_id) == (True, "g")


def test_write_options() -> None:
    """A writer is idempotent unless acks say otherwise, and refuses what it cannot do."""
    assert write_options(SERVER).idempotent
    assert not write_options({**SERVER, "kafka.acks": "1"}).idempotent
    assert write_options(SERVER).exactly_once
    assert not write_options({**SERVER, "kafka.acks": "1"}).exactly_once
    assert not write_options({**SERVER, "exactlyOnce": "false"}).exactly_once
    with pytest.raises(KafkaError, match="exactlyOnce needs"):
        write_options({**SERVER, "exactlyOnce": "true", "kafka.acks": "1"})
    with pytest.raises(KafkaError, match="names its transactions itself"):
        write_options({**SERVER, "kafka.transactional.id": "x"})
    with pytest.raises(KafkaError, match="must be one of: none, gzip"):
        write_options({**SERVER, "kafka.compression.type": "zip"})


def test_settings_are_named_as_options() -> None:
    """The text of a client's setting names the option that the user wrote."""
    with pytest.raises(KafkaError, match=r"value x for option kafka\.fetch\.min\.bytes: Not"):
        read_options(
            {**SERVER, "subscribe": "t", "kafka.fetch.min.bytes": "x"},
            streaming=False,
        )
    with pytest.raises(KafkaError, match=r"for option kafka\.acks: String must be"):
        write_options({**SERVER, "kafka.acks": "zz"})


def test_a_duration_in_a_unknown_unit_is_refused() -> None:
    """Months are no minutes."""
    with pytest.raises(KafkaError, match="is not a duration"):
        read_options({**SERVER, "subscribe": "t", "maxTriggerDelay": "2month"}, streaming=True)


def test_what_is_missing_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base package comes without Spark."""
    monkeypatch.delitem(sys.modules, "ottla.spark.jvm.local_session", raising=False)
    monkeypatch.delattr(ottla.spark.jvm, "local_session", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[spark\]'"):
        ottla.spark.session()
