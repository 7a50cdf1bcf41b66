"""`ottla dump-log` on generated files; tests/conformance compares it with Kafka's tool."""

from __future__ import annotations

import json
from struct import pack
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.cli.commands.dump_log import dump_log_command
from ottla.cli.dump.batches import NO_LIMIT, DumpOptions, dump_log
from ottla.cli.dump.decoders import DECODER_PACKAGE, decoder_class_parser
from ottla.cli.output.message_json import RawJson, json_text, message_json
from ottla.metadata.framing import MessageAndVersion, encode_record
from ottla.protocol.records.metadata import ClientQuotaRecord, PartitionRecord
from ottla.records.builder import encode_batch
from ottla.records.record import Record
from ottla.types import Uuid

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

TIME = 1_700_000_000_000


def run(*arguments: str) -> Result:
    """Call the tool in this process."""
    return CliRunner().invoke(dump_log_command, list(arguments))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Write a segment of two batches that leaves offset 2 out."""
    path = tmp_path / f"{7:020d}.log"
    first = encode_batch([(TIME, b"k", b"v", (("h", b"x"),)), (TIME, None, None, ())])
    path.write_bytes(first + encode_batch([(TIME, b"l", b"w", ())], base_offset=3))
    return path


def test_batches_alone_by_default(log: Path) -> None:
    """Without flags every batch is one line and no record is read."""
    result = run("--files", str(log))
    assert result.exit_code == 0
    title, start, *batches = result.stdout.splitlines()
    assert (title, start) == (f"Dumping {log}", "Log starting offset: 7")
    assert [line.split()[1] for line in batches] == ["0", "3"]
    assert all(line.endswith("isvalid: true") for line in batches)


def test_records_and_gaps(log: Path) -> None:
    """Records are printed with keys and values; a gap in the offsets is reported at the end."""
    result = run("--files", str(log), "--print-data-log")
    records = [line for line in result.stdout.splitlines() if line.startswith("|")]
    assert records[0].endswith("sequence: -1 headerKeys: [h] key: k payload: v")
    assert records[1].endswith("headerKeys: []")
    assert result.stderr.splitlines() == [
        f"Non-consecutive offsets in {log}",
        "  1 is followed by 3",
    ]


def test_a_torn_tail_is_counted(log: Path) -> None:
    """Trailing bytes without a complete batch are reported, unless --max-bytes limits the file."""
    log.write_bytes(log.read_bytes()[:-5])
    assert "invalid bytes at the end of" in run("--files", str(log)).stdout
    assert "invalid" not in run("--files", str(log), "--max-bytes", "120").stdout.replace(
        "isvalid", ""
    )


def test_a_log_is_read_batch_by_batch(log: Path) -> None:
    """Output is written after each batch, so that only one is in memory."""
    pieces: list[str] = []
    gaps = dump_log(log, DumpOptions(False, False, NO_LIMIT, None), pieces.append)
    assert len(pieces) == 3
    assert gaps == []


def test_metadata_records(tmp_path: Path) -> None:
    """Metadata records are one line of JSON with Kafka's names."""
    record = PartitionRecord(
        partition_id=3,
        topic_id=Uuid(b"\1" * 16),
        replicas=[1, 2],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
    )
    path = tmp_path / f"{0:020d}.log"
    value = encode_record(MessageAndVersion(record, 2))
    path.write_bytes(encode_batch([(TIME, None, value, ()), (TIME, None, b"\1\x7f\0", ())]))
    lines = run("--files", str(path), "--cluster-metadata-decoder").stdout.splitlines()
    shown = json.loads(lines[-2].partition("payload: ")[2])
    assert (shown["type"], shown["version"]) == ("PARTITION_RECORD", 2)
    assert shown["data"]["replicas"] == [1, 2]
    assert "eligibleLeaderReplicas" not in shown["data"]
    assert "payload: Error at 1, skipping. " in lines[-1]


def test_unknown_decoders_are_refused_by_name(log: Path) -> None:
    """A custom decoder class ends the call with its name, status 1."""
    result = run("--files", str(log), "--value-decoder-class", "com.example.Mine")
    assert result.exit_code == 1
    assert result.stderr.startswith("Failed to load decoder class com.example.Mine")
    parse = decoder_class_parser(f"{DECODER_PACKAGE}LongDecoder", f"{DECODER_PACKAGE}StringDecoder")
    assert parse(Record(0, 0, pack(">q", -5), b"v")) == ("-5", "v")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes(40), "Found record size 0 smaller than minimum record overhead (14)"),
        (pack(">qiib", 0, 60, 0, 9) + bytes(80), "Invalid magic"),
    ],
)
def test_corrupt_logs_end_with_status_1(content: bytes, message: str, tmp_path: Path) -> None:
    """A file that is not a log is named; there is no traceback."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(content)
    result = run("--files", str(path), "--deep-iteration")
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_missing_file(tmp_path: Path) -> None:
    """A missing file ends the call with status 1."""
    result = run("--files", str(tmp_path / "00.log"))
    assert result.exit_code == 1
    assert result.stderr.endswith("00.log (No such file or directory)\n")


def test_json_as_java_writes_it() -> None:
    """Control characters are in upper case, doubles in Java's form, other letters as they are."""
    assert json_text({"a": 'ü"\\u001f\x1f', "b": [1.0, 1e21, 0.00012, None, True]}) == (
        '{"a":"ü\\"\\\\u001f\\u001F","b":[1.0,1.0E21,1.2E-4,null,true]}'
    )
    assert json_text(RawJson("{}")) == "{}"
    quota = ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)],
        key="producer_byte_rate",
        value=1.5e8,
        remove=False,
    )
    assert message_json(quota, 0) == (
        '{"entity":[{"entityType":"user","entityName":null}],"key":"producer_byte_rate",'
        '"value":1.5E8,"remove":false}'
    )


@pytest.mark.parametrize("damaged", [1, 2])
def test_what_stands_before_damage_is_shown(damaged: int, tmp_path: Path) -> None:
    """Records before one with a false size are printed."""
    path = tmp_path / f"{0:020d}.log"
    values = [b"aaaaaaaa", b"bbbbbbbb", b"cccccccc"]
    batch = bytearray(encode_batch([(TIME, None, value, ()) for value in values]))
    size = (len(batch) - 61) // 3
    batch[61 + damaged * size] = 0x7F  # a size below zero
    path.write_bytes(batch)
    result = run("--files", str(path), "--print-data-log")
    assert result.exit_code == 1
    shown = [line.split()[-1] for line in result.stdout.splitlines() if line.startswith("|")]
    assert shown == [value.decode() for value in values[:damaged]]
    assert "longer than its bytes" in result.stderr
