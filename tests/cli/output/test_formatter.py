"""Records as lines."""

from __future__ import annotations

import pytest

from ottla.cli.output.formatter import Formatter, FormatterError
from ottla.clients.consumer.fetched import AppendedRecord
from ottla.clients.consumer.record_decoder import ConsumerRecord

RECORD = ConsumerRecord("t", 3, 7, 42, b"k", b"v", (("h", b"1"), ("i", None)))
BARE = ConsumerRecord("t", 0, 0, -1, None, None, ())


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({}, "v\n"),
        ({"print.key": "true"}, "k\tv\n"),
        ({"print.key": "true", "print.value": "false"}, "k\n"),
        ({"print.partition": "TRUE", "print.offset": "true"}, "Partition:3\tOffset:7\tv\n"),
        (
            {"print.timestamp": "true", "print.epoch": "true"},
            "CreateTime:42\tEpoch:NOT_PRESENT\tv\n",
        ),
        ({"print.headers": "true"}, "h:1,i:null\tv\n"),
        ({"print.headers": "true", "headers.separator": "|"}, "h:1|i:null\tv\n"),
        ({"print.key": "true", "key.separator": "=", "line.separator": ";"}, "k=v;"),
        ({"null.literal": "~", "print.headers": "true"}, "h:1,i:~\tv\n"),
    ],
)
def test_properties(properties: dict[str, str], text: str) -> None:
    """Each property adds its part in Kafka's order."""
    assert Formatter(properties).format(RECORD) == text


def test_what_is_not_there() -> None:
    """Null, no headers and no timestamp are printed with Kafka's words."""
    every = {"print.key": "true", "print.headers": "true", "print.timestamp": "true"}
    assert Formatter(every).format(BARE) == "NO_TIMESTAMP\tNO_HEADERS\tnull\tnull\n"


def test_times_of_the_broker() -> None:
    """LogAppendTime has its own label."""
    formatter = Formatter({"print.timestamp": "true"})
    assert formatter.format(AppendedRecord(*RECORD)) == "LogAppendTime:42\tv\n"


def test_numbers() -> None:
    """Kafka's deserializers of numbers are known by their class names."""
    name = "org.apache.kafka.common.serialization.LongDeserializer"
    formatter = Formatter({"value.deserializer": name})
    record = RECORD._replace(value=(258).to_bytes(8, "big"))
    assert formatter.format(record) == "258\n"
    with pytest.raises(ValueError, match="1 bytes cannot be deserialized"):
        formatter.format(RECORD)
    with pytest.raises(FormatterError, match=r"Class no\.Such could not be found"):
        Formatter({"key.deserializer": "no.Such"})


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("Float", "3dcccccd", "0.1"),
        ("Float", "00000007", "9.8E-45"),
        ("Float", "7f7fffff", "3.4028235E38"),
        ("Float", "4b18967f", "9999999.0"),
        ("Float", "7f800000", "Infinity"),
        ("Double", "4202a05f20000000", "1.0E10"),
        ("Double", "3fb999999999999a", "0.1"),
        ("Boolean", "01", "true"),
        ("UUID", "61", "a"),
    ],
)
def test_numbers_are_written_as_java_does(name: str, data: str, text: str) -> None:
    """The shortest decimal of a number, with Java's exponents."""
    record = BARE._replace(value=bytes.fromhex(data))
    properties = {"value.deserializer": f"org.apache.kafka.common.serialization.{name}Deserializer"}
    assert Formatter(properties).format(record) == f"{text}\n"


def test_nothing_is_no_line() -> None:
    """Without any part there is no separator of lines either."""
    assert Formatter({"print.value": "false"}).format(RECORD) == ""
