"""Record batches, codecs and the validator compared with Kafka's classes.

One Java process answers all questions of this module: it builds batches with MemoryRecordsBuilder,
reads ours, and runs LogValidator.
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.errors import KafkaError
from ottla.records.batch import RecordBatch, TimestampType
from ottla.records.batches import iterate_batches
from ottla.records.builder import assemble_batch, encode_batch
from ottla.records.compression import Compression
from ottla.records.control import encode_end_txn_marker
from ottla.records.validation_rules import RecordValidationError, ValidationRules
from ottla.records.validator import (
    AppendOrigin,
    ValidatedBatch,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
CODECS = list(Compression)
NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
MAX_INT64 = (1 << 63) - 1
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class Oracle:
    """The Java process; one JSON question, one JSON answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, **question: Any) -> dict[str, Any]:
        """Send a question and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def oracle(kafka: Kafka) -> Iterator[Oracle]:
    """Run the Java program for all tests here."""
    classes = kafka.compile(Path(__file__).parent / "java" / "BatchOracle.java")
    with subprocess.Popen(
        kafka.command("BatchOracle", classes=classes),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield Oracle(process)
        process.kill()


def some_rows(seed: int, count: int) -> list[Row]:
    """Return records with and without keys, values and headers; some compress, some do not."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for index in range(count):
        headers = [
            (f"h{number}ß", rng.choice([None, b"", rng.randbytes(5)]))
            for number in range(rng.choice([0, 0, 1, 3]))
        ]
        key = rng.choice([None, b"", b"key%d" % index])
        value = rng.choice([None, b"", b"abc" * rng.randrange(300), rng.randbytes(100)])
        rows.append((NOW + rng.randrange(-500, 500), key, value, headers))
    return rows


def as_json(rows: list[Row]) -> list[Any]:
    """Return the rows as the Java side takes them."""

    def text(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    return [
        [timestamp, text(key), text(value), [[name, text(content)] for name, content in headers]]
        for timestamp, key, value, headers in rows
    ]


def read_ours(data: bytes | bytearray) -> tuple[list[Any], list[Any]]:
    """Return batches and records as the Java side reports them."""
    batches, records = [], []
    for batch in iterate_batches(data, partial_tail=True):
        batch.check_crc()
        batches.append(
            [
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
                batch.leader_epoch,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.is_transactional,
                batch.is_control,
                int(batch.compression),
                int(batch.timestamp_type),
            ]
        )
        records += [
            [record.offset, *as_json([(record[1], record[2], record[3], list(record[4]))])[0]]
            for record in batch.records()
        ]
    return batches, records


def build_question(rows: list[Row], **fields: Any) -> dict[str, Any]:
    """Return the question that builds a batch of these rows."""
    return {
        "do": "build",
        "magic": 2,
        "compression": "none",
        "level": None,
        "timestamp_type": 0,
        "base_offset": 0,
        "log_append_time": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "leader_epoch": -1,
        "records": as_json(rows),
        **fields,
    }


@pytest.mark.parametrize(
    ("magic", "codec"),
    [
        (magic, codec)
        for magic in (0, 1, 2)
        for codec in CODECS
        if magic == 2 or codec != Compression.ZSTD  # zstd came with format 2
    ],
)
def test_reads_what_kafka_builds(oracle: Oracle, codec: Compression, magic: int) -> None:
    """Batches of every format and codec that Kafka builds read as Kafka reads them."""
    for seed, count in ((1, 1), (2, 7), (3, 700)):
        rows = some_rows(seed, count)
        if magic < 2:
            rows = [(timestamp, key, value, []) for timestamp, key, value, _ in rows]
        times = [row if magic else (-1, *row[1:]) for row in rows]
        built = oracle.ask(
            **build_question(times, magic=magic, compression=codec.config_name, base_offset=40)
        )
        data = bytes.fromhex(built["batch"])
        batches, records = read_ours(data)
        read = oracle.ask(do="read", batch=built["batch"])
        assert records == read["records"]
        assert batches == read["batches"]
        assert len(records) == count


@pytest.mark.parametrize("level", [None, 1, 9])
@pytest.mark.parametrize("codec", CODECS)
def test_kafka_reads_what_we_build(oracle: Oracle, codec: Compression, level: int | None) -> None:
    """Kafka reads our batches of every codec, small and of several blocks, as we do."""
    for seed, count in ((4, 1), (5, 9), (6, 2000)):
        rows = some_rows(seed, count)
        data = encode_batch(
            rows,
            base_offset=7,
            leader_epoch=3,
            compression=codec,
            level=level,
            producer_id=5,
            producer_epoch=2,
            base_sequence=11,
            transactional=True,
        )
        read = oracle.ask(do="read", batch=data.hex())
        batches, records = read_ours(data)
        assert records == read["records"]
        assert batches == read["batches"]


@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_uncompressed_batches_are_equal_byte_for_byte(oracle: Oracle, timestamp_type: int) -> None:
    """Our builder and Kafka's write the same bytes."""
    rows = some_rows(9, 50)
    built = oracle.ask(
        **build_question(
            rows,
            timestamp_type=timestamp_type,
            log_append_time=NOW,
            producer_id=7,
            producer_epoch=1,
            base_sequence=2_147_483_640,
            transactional=True,
            leader_epoch=4,
            base_offset=99,
        )
    )
    ours = encode_batch(
        rows,
        base_offset=99,
        leader_epoch=4,
        timestamp_type=TimestampType(timestamp_type),
        log_append_time=NOW,
        producer_id=7,
        producer_epoch=1,
        base_sequence=2_147_483_640,
        transactional=True,
    )
    assert ours.hex() == built["batch"]


def bare(batch: bytes | bytearray, **fields: int) -> bytes:
    """Return the batch with header fields replaced and the checksum made good."""
    view = RecordBatch(batch)
    header = {
        "attributes": view.attributes,
        "record_count": view.record_count,
        "last_offset_delta": view.last_offset_delta,
        "base_timestamp": view.base_timestamp,
        "max_timestamp": view.max_timestamp,
        "base_offset": view.base_offset,
        "producer_id": view.producer_id,
        "producer_epoch": view.producer_epoch,
        "base_sequence": view.base_sequence,
        **fields,
    }
    return bytes(assemble_batch(view.payload, **header))


def candidates() -> list[tuple[str, bytes, dict[str, Any]]]:
    """Return batches, good and bad in every way, with the rules that they are to meet."""
    rows = some_rows(20, 12)
    keyed = [(row[0], row[1] or b"k", row[2], row[3]) for row in rows]
    plain = bytes(encode_batch(rows))
    packed = bytes(encode_batch(rows, compression=Compression.LZ4))
    late = encode_batch([(NOW + offset, b"k", b"v", []) for offset in (0, HOUR_MS + 1, 5)])
    old = encode_batch([(NOW - offset, b"k", b"v", []) for offset in (0, 10_001, 5)])
    marker = bytes(
        encode_end_txn_marker(
            commit=True, coordinator_epoch=3, producer_id=4, producer_epoch=1, timestamp=NOW
        )
    )
    append_time = encode_batch(
        rows, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=NOW - 5
    )
    stamp = {"timestamp_type": 1}
    found: list[tuple[str, bytes, dict[str, Any]]] = [
        ("plain", plain, {}),
        ("wrong max timestamp", bare(plain, max_timestamp=3), {}),
        ("stamped by the broker", plain, stamp),
        ("stamped by the broker, packed", packed, stamp),
        ("compacted, keys", bytes(encode_batch(keyed)), {"compacted": True}),
        ("compacted, no keys", plain, {"compacted": True}),
        ("compacted, no keys, packed", packed, {"compacted": True}),
        ("late", bytes(late), {}),
        ("old", bytes(old), {"before": 10_000}),
        ("old, but any age will do", bytes(old), {}),
        ("no timestamps", bytes(encode_batch([(-1, b"k", b"v", [])])), {"before": 1, "after": 1}),
        ("append time by a client", bytes(append_time), {}),
        ("append time by a client for such a topic", bytes(append_time), stamp),
        ("append time without timestamps", bare(append_time, max_timestamp=-1), {}),
        ("control by a client", marker, {}),
        ("control by a coordinator", marker, {"origin": "COORDINATOR"}),
        ("control, packed topic", marker, {"origin": "COORDINATOR", "compression": "zstd"}),
        ("no records", bare(encode_batch([]), record_count=0), {}),
        ("negative count", bare(plain, record_count=-5), {}),
        ("negative last offset", bare(plain, last_offset_delta=-1), {}),
        ("count and offsets differ", bare(plain, record_count=11), {}),
        ("fewer records than said", bare(plain, record_count=13, last_offset_delta=12), {}),
        ("more records than said", bare(plain, record_count=11, last_offset_delta=10), {}),
        ("more than said, packed", bare(packed, record_count=11, last_offset_delta=10), {}),
        (
            "fewer records than said, packed",
            bare(packed, record_count=13, last_offset_delta=12),
            {},
        ),
        ("no sequence", bare(plain, producer_id=9, producer_epoch=1), {}),
        ("sequence", bare(plain, producer_id=9, producer_epoch=1, base_sequence=2**31 - 3), {}),
        ("two batches", plain + plain, {}),
        ("a batch and a torn one", plain + plain[:40], {}),
        ("torn", plain[:40], {}),
        ("empty", b"", {}),
    ]
    for source, target in itertools.product(CODECS, CODECS):
        batch = bytes(encode_batch(rows, compression=source, producer_id=3, producer_epoch=0,
                                   base_sequence=5, transactional=True))  # fmt: skip
        name = f"{source.config_name} to {target.config_name}"
        rule = {"compression": target.config_name}
        found += [(name, batch, rule), (f"{name}, stamped", batch, rule | stamp)]
    return found


CANDIDATES = candidates()


@pytest.mark.parametrize(
    ("batch", "rules"), [case[1:] for case in CANDIDATES], ids=[case[0] for case in CANDIDATES]
)
def test_validates_as_kafka_does(oracle: Oracle, batch: bytes, rules: dict[str, Any]) -> None:
    """LogValidator and ours accept the same batches, store the same, refuse in the same words."""
    settings: dict[str, Any] = {
        "compression": "producer",
        "level": None,
        "timestamp_type": 0,
        "before": MAX_INT64,
        "after": HOUR_MS,
        "compacted": False,
        "origin": "CLIENT",
        "now": NOW,
        "next_offset": 5000,
        "leader_epoch": 8,
        **rules,
    }
    theirs = oracle.ask(do="validate", batch=batch.hex(), **settings)
    ours = _outcome(batch, settings)
    if isinstance(ours, KafkaError):
        assert theirs.get("error") == ours.code.name, (theirs, ours)
        if ours.message != ours.code.text:  # the text of the request's check is not sent
            assert theirs["message"] == ours.message
        if isinstance(ours, RecordValidationError):
            assert theirs["records"] == [list(one) for one in ours.record_errors]
        return
    assert "error" not in theirs, theirs
    stored = bytes(ours.buffer)
    # what codecs make of the same records may differ
    assert read_ours(stored) == read_ours(bytes.fromhex(theirs["batch"]))
    if RecordBatch(stored).compression == Compression.NONE:
        # a torn tail is cut off later in Kafka
        assert stored.hex() == theirs["batch"][: 2 * len(stored)]
    assert ours.max_timestamp == theirs["max_timestamp"]
    summary = ours
    header = RecordBatch(stored)
    assert summary.base_offset == header.base_offset
    assert summary.last_offset == header.last_offset == ours.last_offset
    assert summary.last_sequence == header.last_sequence
    assert summary.max_timestamp == header.max_timestamp
    assert summary.is_control == header.is_control
    assert summary.size == header.size == len(stored)
    assert ours.record_count == header.record_count


def _outcome(batch: bytes, settings: dict[str, Any]) -> ValidatedBatch | KafkaError:
    try:
        return _validate(batch, settings)
    except KafkaError as error:
        return error


def _validate(batch: bytes, settings: dict[str, Any]) -> ValidatedBatch:
    name = settings["compression"]
    return validate(
        memoryview(bytearray(batch)),
        next_offset=settings["next_offset"],
        leader_epoch=settings["leader_epoch"],
        now_ms=settings["now"],
        origin=AppendOrigin[settings["origin"]],
        rules=ValidationRules(
            compression_type=None if name == "producer" else Compression.from_name(name),
            timestamp_type=TimestampType(settings["timestamp_type"]),
            before_max_ms=settings["before"],
            after_max_ms=settings["after"],
            is_compacted=settings["compacted"],
            topic_partition="t-0",
        ),
    )
