"""kafka-dump-log.sh and `ottla dump-log` on the same files: the same text, the same exit code.

The files hold every kind of record that a decoder can meet, written with a fixed seed, and what
a real node left on its disk.
"""

from __future__ import annotations

import re
import subprocess
import sys
from random import Random
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ottla.metadata.framing import RECORD_CLASSES, MessageAndVersion, encode_record
from ottla.protocol import codec
from ottla.protocol.primitives import encode_uvarint
from ottla.protocol.records import (
    consumer_group,
    group,
    raft,
    remote_log,
    share,
    share_group,
    streams_group,
    transaction,
)
from ottla.protocol.records.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.schema import Struct
from ottla.records.batch import RecordBatch, TimestampType
from ottla.records.builder import encode_batch
from ottla.records.compression import Compression, compress
from ottla.records.control import (
    ControlRecordType,
    encode_control_batch,
    encode_end_txn_marker,
)
from ottla.storage.producers.entry import BatchMetadata, ProducerEntry
from ottla.storage.producers.snapshot import encode_snapshot
from tests.conformance.clients.node_process import running_node
from tests.conformance.kafka import running_kafka
from tests.protocol.messages import random_message
from tests.records.batch_changes import rebuild_batch
from tests.records.test_legacy import message as legacy_message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import ModuleType

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance

TOOL = "org.apache.kafka.tools.DumpLogSegments"
ZEROS = "0" * 20
TIME = 1_700_000_000_000


class Answer(NamedTuple):
    """What a dump printed and how it ended."""

    lines: list[str]
    errors: list[str]
    status: int


def java_dump(kafka: Kafka, *arguments: str) -> Answer:
    """Run Kafka's tool."""
    command = kafka.command(TOOL, *arguments)
    command.insert(1, "-Dfile.encoding=UTF-8")
    return _run(command)


def our_dump(*arguments: str) -> Answer:
    """Run ours."""
    return _run([sys.executable, "-X", "utf8", "-m", "ottla.cli.main", "dump-log", *arguments])


def _run(command: list[str]) -> Answer:
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=100, check=False, cwd="/"
    )
    errors = []
    for shown in done.stderr.splitlines():
        line = re.sub(r'^Exception in thread "main" [\w.$]+(: )?', "", shown)
        if line.startswith(("\tat ", "Caused by", "org.apache", "java.", "\t...")):
            continue
        if line and not line.startswith("SLF4J"):
            errors.append(line)
    return Answer(done.stdout.splitlines(), errors, done.returncode)


def same(kafka: Kafka, files: Iterable[Path], *arguments: str) -> Answer:
    """Dump files with both tools and compare all that they print."""
    names = ",".join(str(path) for path in files)
    ours = our_dump("--files", names, *arguments)  # first: Kafka's tool cuts index files
    theirs = java_dump(kafka, "--files", names, *arguments)
    assert ours.lines == theirs.lines
    assert ours.errors == theirs.errors
    assert ours.status == theirs.status
    return ours


# ---------------------------------------------------------------- the files


def save(directory: Path, name: str, batches: Iterable[bytes | bytearray], offset: int = 0) -> Path:
    """Write a segment in a directory of its own."""
    path = directory / name / f"{offset:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(bytes(one) for one in batches))
    return path


def batches_of_all_kinds() -> list[bytes | bytearray]:
    """Make batches of every codec and flag, one compacted away, and control batches."""
    records = [
        (TIME, b"key", b"value", (("h1", b"x"), ("h2", None))),
        (TIME + 1, None, "grüße, 日本語".encode(), ()),
        (TIME + 2, b"\xff\xfe", None, ()),
    ]
    made: list[bytes | bytearray] = []
    offset = 0
    for compression in Compression:
        for stamp in (None, TIME + 9):
            made.append(
                encode_batch(
                    records,
                    base_offset=offset,
                    leader_epoch=3,
                    compression=compression,
                    timestamp_type=TimestampType.CREATE_TIME
                    if stamp is None
                    else TimestampType.LOG_APPEND_TIME,
                    log_append_time=stamp,
                    producer_id=77,
                    producer_epoch=2,
                    base_sequence=2**31 - 2,
                    transactional=True,
                )
            )
            offset += 3
    whole = RecordBatch(encode_batch(records, base_offset=offset))
    made += [rebuild_batch(whole, whole.records()[1:2], delete_horizon_ms=TIME + 99)]
    made += [rebuild_batch(RecordBatch(encode_batch(records, base_offset=offset + 3)), [])]
    for commit in (True, False):
        made.append(
            encode_end_txn_marker(
                commit=commit,
                coordinator_epoch=4,
                producer_id=77,
                producer_epoch=2,
                timestamp=TIME,
                base_offset=offset + 6 + commit,
            )
        )
    return made


def control_batches() -> list[bytes | bytearray]:
    """Make the control records of a metadata log and of snapshots."""
    made: Any = raft  # defaults are asked for by leaving fields out
    voter = made.VotersRecord.Voter
    voters = made.VotersRecord(
        voters=[
            voter(
                voter_id=1,
                endpoints=[voter.Endpoint(name="CONTROLLER", host="h", port=9)],
                kraft_version_feature=voter.KRaftVersionFeature(max_supported_version=1),
            )
        ]
    )
    change = made.LeaderChangeMessage(
        leader_id=1, voters=[made.Voter(voter_id=1)], granting_voters=[made.Voter(voter_id=1)]
    )
    messages: list[tuple[ControlRecordType, Struct]] = [
        (ControlRecordType.LEADER_CHANGE, change),
        (ControlRecordType.SNAPSHOT_HEADER, made.SnapshotHeaderRecord()),
        (ControlRecordType.KRAFT_VERSION, made.KRaftVersionRecord(kraft_version=1)),
        (ControlRecordType.KRAFT_VOTERS, voters),
        (ControlRecordType.SNAPSHOT_FOOTER, made.SnapshotFooterRecord()),
    ]
    encoded = [(kind, codec.to_bytes(one, 0)) for kind, one in messages]
    unknown = encode_batch([(TIME, pack(">hh", 0, 99), b"", ())], base_offset=5, control=True)
    return [encode_control_batch(encoded, timestamp=TIME), unknown]


def coordinator_batches(*modules: ModuleType) -> list[bytes | bytearray]:
    """Make a record of every key, version of value, tombstone, unknown type and broken value."""
    rng = Random(43)
    found = [
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Struct) and one.message_key >= 0
    ]
    keys = {one.message_key: one for one in found if one.__name__.endswith("Key")}
    values = {one.message_key: one for one in found if one.__name__.endswith("Value")}
    pairs: list[tuple[bytes, bytes | None]] = []
    for number, cls in keys.items():
        key = pack(">h", number) + codec.to_bytes(random_message(cls, 0, rng), 0)
        pairs.append((key, None))
        value = values[number]
        for version in range(value.versions.lowest, value.versions.highest + 1):
            for _ in range(4):
                message = random_message(value, version, rng)
                if number == 2:
                    message.protocol_type = rng.choice(("consumer", "connect"))  # type: ignore[attr-defined]
                pairs.append((key, pack(">h", version) + codec.to_bytes(message, version)))
        pairs.append((key, pack(">h", value.versions.highest + 1)))
    pairs += [(pack(">h", 99), b"\0\0"), (b"\0", b"")]
    return [encode_batch([(TIME, key, value, ()) for key, value in pairs])]


def group_batches() -> list[bytes | bytearray]:
    """Make a classic group whose members have subscriptions."""
    inner = ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[0, 1])
    owned = ConsumerProtocolSubscription(
        topics=["a", "b"], owned_partitions=[inner], generation_id=3, rack_id="r", user_data=b"u"
    )
    given = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[2])
    assigned = ConsumerProtocolAssignment(assigned_partitions=[given])
    made: Any = group
    value = group.GroupMetadataValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader='m"1\x01\t',
        current_state_timestamp=TIME,
        members=[
            made.MemberMetadata(
                member_id="m1",
                subscription=pack(">h", version) + codec.to_bytes(owned, version),
                assignment=pack(">h", version) + codec.to_bytes(assigned, version),
            )
            for version in range(4)
        ],
    )
    key = pack(">h", 2) + codec.to_bytes(group.GroupMetadataKey(group="g"), 0)
    return [
        encode_batch(
            [(TIME, key, pack(">h", version) + codec.to_bytes(value, version), ())],
            base_offset=version,
        )
        for version in (3, 4)
    ]


def metadata_batches() -> list[bytes | bytearray]:
    """Make a record of every kind and version of the metadata log."""
    rng = Random(4)
    values = [
        encode_record(MessageAndVersion(random_message(cls, version, rng), version))
        for _, cls in sorted(RECORD_CLASSES.items())
        for version in range(cls.versions.lowest, cls.versions.highest + 1)
        for _ in range(4)
    ]
    return [encode_batch([(TIME, None, value, ()) for value in values])]


def remote_batches() -> list[bytes | bytearray]:
    """Make the four kinds of records about segments in a remote store."""
    rng = Random(6)
    values = []
    classes: tuple[Any, ...] = (
        remote_log.RemoteLogSegmentMetadataRecord,
        remote_log.RemoteLogSegmentMetadataUpdateRecord,
        remote_log.RemotePartitionDeleteMetadataRecord,
        remote_log.RemoteLogSegmentMetadataSnapshotRecord,
    )
    for cls in classes:
        for number in range(3):
            message: Any = random_message(cls, 0, rng)
            for name, value in (
                ("start_offset", 5),
                ("end_offset", 90),
                ("remote_log_segment_state", number),
                ("remote_partition_delete_state", number),
                ("custom_metadata", None if number else b"abc"),
            ):
                if any(field.name == name for field in cls.fields):
                    setattr(message, name, value)
            if any(field.name == "segment_leader_epochs" for field in cls.fields):
                entry = cls.SegmentLeaderEpochEntry
                message.segment_leader_epochs = [
                    entry(leader_epoch=3, offset=20),
                    entry(leader_epoch=1, offset=5),
                ]
            head = b"\1" + encode_uvarint(cls.message_key) + b"\0"
            values.append(head + codec.to_bytes(message, 0))
    return [encode_batch([(TIME, None, value, ()) for value in values])]


def legacy_batches() -> list[bytes]:
    """Make messages of formats 0 and 1, plain and wrapped."""
    made = [
        legacy_message(0, 0, b"v", key=b"k"),
        legacy_message(1, 1, None, timestamp=TIME),
        legacy_message(1, 2, b"w", timestamp=TIME, attributes=8),
    ]
    inner = b"".join(legacy_message(1, at, b"v%d" % at, timestamp=TIME + at) for at in range(3))
    packed = bytes(compress(Compression.GZIP, inner))
    return [*made, legacy_message(1, 5, packed, attributes=1, timestamp=TIME + 2)]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--deep-iteration",),
        ("--print-data-log",),
        ("--print-data-log", "--skip-record-metadata"),
        ("--key-decoder-class", "--value-decoder-class"),
        ("--print-data-log", "--max-bytes", "700"),
        ("--max-bytes", "0"),
    ],
    ids=" ".join,
)
def test_batches(arguments: tuple[str, ...], kafka: Kafka, tmp_path: Path) -> None:
    """Batches of every codec, flag and format look alike at every depth, gaps and tails too."""
    made = batches_of_all_kinds()
    torn = bytearray(made[0])
    torn[-2] ^= 1
    files = [
        save(tmp_path, "kinds", made),
        save(tmp_path, "control", control_batches()),
        save(tmp_path, "legacy", legacy_batches()),
        save(tmp_path, "torn", [*made[:2], made[2][:-9]]),
        save(tmp_path, "short", [*made[:2], made[2][:9]]),
        save(tmp_path, "bad-crc", [torn]),
        save(tmp_path, "empty", [], offset=4),
    ]
    same(kafka, files, *arguments)


def test_a_size_that_is_none(kafka: Kafka, tmp_path: Path) -> None:
    """A log of zeros ends both tools with the same sentence and status 1."""
    path = save(tmp_path, "zeros", [batches_of_all_kinds()[0], bytes(100)])
    assert same(kafka, [path]).status == 1


DECODERS = {
    "--transaction-log-decoder": (transaction,),
    "--share-group-state-decoder": (share,),
    "--offsets-decoder": (group, consumer_group, share_group, streams_group),
}


@pytest.mark.parametrize("flag", DECODERS)
def test_coordinator_decoders(flag: str, kafka: Kafka, tmp_path: Path) -> None:
    """Every record that coordinators write, in every version, is shown alike."""
    path = save(tmp_path, "log", coordinator_batches(*DECODERS[flag]))
    lines = same(kafka, [path], flag).lines
    assert len(lines) >= 15
    same(kafka, [path], flag, "--skip-record-metadata")


def test_classic_groups_are_opened(kafka: Kafka, tmp_path: Path) -> None:
    """Subscriptions and assignments inside a group's record are read too."""
    lines = same(kafka, [save(tmp_path, "g", group_batches())], "--offsets-decoder").lines
    assert any('"ownedPartitions":[{"topic":"t"' in line for line in lines)


def test_a_record_without_key_ends_a_coordinator_dump(kafka: Kafka, tmp_path: Path) -> None:
    """Records of coordinators have keys; another file is refused."""
    path = save(tmp_path, "log", [encode_batch([(TIME, None, b"v", ())])])
    assert same(kafka, [path], "--offsets-decoder").status == 1


def test_metadata_decoder(kafka: Kafka, tmp_path: Path) -> None:
    """Every metadata record in every version is printed alike, as are control records."""
    path = save(tmp_path, "log", metadata_batches())
    assert len(same(kafka, [path], "--cluster-metadata-decoder").lines) > 100


def test_remote_log_decoder(kafka: Kafka, tmp_path: Path) -> None:
    """The records about remote segments are shown as Java prints them."""
    path = save(tmp_path, "log", remote_batches())
    assert len(same(kafka, [path], "--remote-log-metadata-decoder").lines) == 15


def test_number_decoders(kafka: Kafka, tmp_path: Path) -> None:
    """Kafka's decoders of numbers are there by their names; unknown classes are refused."""
    path = save(tmp_path, "log", [encode_batch([(TIME, pack(">i", -5), pack(">q", 2**40), ())])])
    package = "org.apache.kafka.tools.api."
    flags = (f"--key-decoder-class={package}IntegerDecoder",)
    same(kafka, [path], *flags, f"--value-decoder-class={package}LongDecoder")
    for name in ("com.example.Mine", "kafka.serializer.DefaultDecoder"):  # the old names are gone
        theirs = java_dump(kafka, "--files", str(path), f"--value-decoder-class={name}")
        ours = our_dump("--files", str(path), f"--value-decoder-class={name}")
        assert (ours.status, ours.lines) == (theirs.status, theirs.lines)
        assert theirs.errors[0] == "Failed to load decoder class"
        assert ours.errors[0].startswith(f"Failed to load decoder class {name}")


def test_the_version_and_a_bound_of_batches(kafka: Kafka, tmp_path: Path) -> None:
    """The version is Kafka's; a bound that is too small for a batch has the same effect."""
    assert our_dump("--version") == java_dump(kafka, "--version")
    path = save(tmp_path, "log", [encode_batch([(TIME, b"key", b"value" * 99, ())])])
    index = path.with_suffix(".index")
    index.write_bytes(pack(">ii", 0, 0))
    small = ("--files", str(index), "--max-message-size", "100", "--verify-index-only")
    ours, theirs = our_dump(*small), java_dump(kafka, *small)  # theirs is a bare stack trace
    assert (ours.lines, ours.status) == (theirs.lines, theirs.status)
    assert ours.errors == [f"{path} has no batch at position 0"]
    same(kafka, [path, index], "--max-message-size", "10000")


def test_the_default_decoder_shows_arrays(kafka: Kafka, tmp_path: Path) -> None:
    """Bytes are shown as Java shows an array, whose address differs from run to run."""
    path = save(
        tmp_path, "log", [encode_batch([(TIME, b"key", b"value", ()), (TIME, None, b"", ())])]
    )
    package = "org.apache.kafka.tools.api."
    flags = ["--files", str(path), "--print-data-log"]
    flags += [f"--{part}-decoder-class={package}DefaultDecoder" for part in ("key", "value")]
    theirs, ours = java_dump(kafka, *flags), our_dump(*flags)
    shown = [
        [re.sub(r"\[B@[0-9a-f]+", "[B@", line) for line in answer.lines]
        for answer in (ours, theirs)
    ]
    assert shown[0] == shown[1]
    assert sum("payload: [B@" in line for line in shown[0]) == 2


# ---------------------------------------------------------------- indexes and snapshots


def indexed(directory: Path) -> Path:
    """Write a segment of three batches with both indexes; return the log's path."""
    made = [
        encode_batch([(TIME + 10 * at + one, b"k", b"v", ()) for one in (0, 1)], base_offset=2 * at)
        for at in range(3)
    ]
    log = save(directory, "indexed", made)
    starts = [0, len(made[0]), len(made[0]) + len(made[1])]
    offsets = b"".join(pack(">ii", 2 * at + 1, starts[at]) for at in (1, 2))
    log.with_suffix(".index").write_bytes(offsets)
    times = b"".join(pack(">qi", TIME + 10 * at + 1, 2 * at + 1) for at in range(3))
    log.with_suffix(".timeindex").write_bytes(times)
    return log


@pytest.mark.parametrize("flag", ["", "--verify-index-only", "--index-sanity-check"])
def test_indexes(flag: str, kafka: Kafka, tmp_path: Path) -> None:
    """Valid, preallocated, empty and wrong indexes have the same results."""
    flags = [flag] if flag else []
    log = indexed(tmp_path)
    files = [log.with_suffix(".index"), log.with_suffix(".timeindex")]
    assert same(kafka, files, *flags).errors == []
    for path in files:
        path.write_bytes(path.read_bytes() + bytes(960))
    same(kafka, files, *flags)
    files[0].write_bytes(pack(">ii", 2, 0) + pack(">ii", 4, 74))
    files[1].write_bytes(
        b"".join(
            pack(">qi", stamp, at)
            for stamp, at in ((TIME + 7, 1), (TIME + 3, 3), (TIME + 5, 4), (TIME + 9, 50))
        )
    )
    assert flag == "--index-sanity-check" or same(kafka, files, *flags).errors
    files[0].write_bytes(b"")
    files[1].write_bytes(b"")
    same(kafka, files, *flags)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (".index", pack(">ii", 3, 0) + pack(">ii", -9, 9)),
        (".index", pack(">ii", 3, 0) + b"abc"),
        (".timeindex", pack(">qi", TIME, 1) + pack(">qi", 5, 3)),
        (".timeindex", pack(">qi", TIME, 1) + pack(">qi", TIME + 1, -3)),
        (".timeindex", pack(">qi", TIME, 1) + b"abc"),
        (".index", pack(">ii", 3, 100_000)),
    ],
)
def test_broken_indexes(name: str, data: bytes, kafka: Kafka, tmp_path: Path) -> None:
    """What a start would rebuild is named by the same sentence; status 1."""
    path = indexed(tmp_path).with_suffix(name)
    path.write_bytes(data)
    flags = () if data == pack(">ii", 3, 100_000) else ("--index-sanity-check",)
    names = ("--files", str(path), *flags)
    ours, theirs = our_dump(*names), java_dump(kafka, *names)
    assert (ours.lines, ours.status) == (theirs.lines, 1)
    assert theirs.errors[0].startswith(ours.errors[0])
    assert theirs.status == 1


def test_snapshots_and_aborted_transactions(kafka: Kafka, tmp_path: Path) -> None:
    """Producer snapshots, also corrupt ones, and transaction indexes print alike."""
    entries = [
        ProducerEntry(5, producer_epoch=1, last_timestamp=TIME),
        ProducerEntry(
            6,
            producer_epoch=2,
            coordinator_epoch=3,
            last_timestamp=TIME,
            transaction_first_offset=40,
            batches=(BatchMetadata(1, 44, 4, TIME),),
        ),
    ]
    good = encode_snapshot(entries)
    files = []
    for number, data in enumerate((good, encode_snapshot([]), good[:-1] + b"\1", b"\0\7" + good)):
        path = tmp_path / f"{number:020d}.snapshot"
        path.write_bytes(data)
        files.append(path)
    aborted = tmp_path / f"{ZEROS}.txnindex"
    aborted.write_bytes(pack(">hqqqq", 0, 7, 1, 2, 3) + pack(">hqqqq", 0, 8, 4, 5, 6))
    other = tmp_path / "leader-epoch.checkpoints"
    other.write_bytes(b"")
    same(kafka, [*files, aborted, other, tmp_path / "nosuffix"])


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--print-data-log",),
        ("--files", "/nowhere/00000000000000000000.log"),
        ("--files", "/nowhere/abc.log"),
        ("--files",),
        ("--files", "x.log", "--max-bytes", "many"),
        ("--files", "x.log", "--nonsense"),
    ],
    ids=" ".join,
)
def test_wrong_calls(arguments: tuple[str, ...], kafka: Kafka) -> None:
    """A wrong call ends with status 1 in both."""
    theirs, ours = java_dump(kafka, *arguments), our_dump(*arguments)
    assert (ours.status, theirs.status) == (1, 1)
    assert ours.errors


# ---------------------------------------------------------------- files of a node


def test_the_directory_of_a_real_node(kafka: Kafka, tmp_path: Path) -> None:
    """All files that a node left, metadata log and snapshot too, are read alike."""
    (tmp_path / "node").mkdir()
    with running_kafka(kafka, tmp_path / "node", {"log.segment.bytes": "1048576"}) as node:
        node.tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "one")
        lines = "".join(f"k{number}\tvalue {number}\n" for number in range(2000))
        keys = ("--reader-property", "parse.key=true", "--compression-codec", "zstd")
        node.tool("org.apache.kafka.tools.ConsoleProducer", "--topic", "one", *keys, stdin=lines)
        read = ("--topic", "one", "--group", "g", "--from-beginning", "--max-messages", "2000")
        node.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *read)
        node.stop()
        logs = node.log_dir
    suffixes = {".log", ".index", ".timeindex", ".snapshot", ".checkpoint"}
    kept = (p for p in sorted(logs.glob("one-0/*")) if p.suffix in suffixes)
    assert len(same(kafka, kept, "--print-data-log").lines) > 2000
    offsets = sorted(logs.glob("__consumer_offsets-*/*.log"))
    assert any('"group":"g"' in line for line in same(kafka, offsets, "--offsets-decoder").lines)
    metadata = sorted(logs.glob("__cluster_metadata-0/*"))
    shown = [path for path in metadata if path.suffix in suffixes]
    shown.append(logs / "bootstrap.checkpoint")
    text = same(kafka, shown, "--cluster-metadata-decoder").lines
    assert any('"type":"TOPIC_RECORD"' in line for line in text)
    assert any("LeaderChange: " in line for line in text)


def test_the_directory_of_our_node(kafka: Kafka, tmp_path: Path) -> None:
    """Kafka's tool reads what our node left, and finds every index right."""
    with running_node(tmp_path) as node:
        flags = ("--bootstrap-server", node.bootstrap, "--topic", "one")
        main = (sys.executable, "-m", "ottla.cli.main")
        load = ("--num-records", "3000", "--record-size", "500", "--throughput", "-1")
        subprocess.run([*main, "producer-perf-test", *flags, *load], check=True)
        read = ("--group-id", "g", "--max-messages", "3000")
        subprocess.run([*main, "verifiable-consumer", *flags, *read], check=True)
        node.end()
    suffixes = {".log", ".index", ".timeindex", ".snapshot", ".checkpoint"}
    kept = [p for p in sorted(node.data_dir.glob("one-0/*")) if p.suffix in suffixes]
    answer = same(kafka, kept, "--deep-iteration")
    assert len(answer.lines) > 3000
    assert answer.errors == []
    offsets = sorted(node.data_dir.glob("__consumer_offsets-*/*.log"))
    assert any('"group":"g"' in line for line in same(kafka, offsets, "--offsets-decoder").lines)
    metadata = sorted(node.data_dir.glob("__cluster_metadata-0/*"))
    shown = [path for path in metadata if path.suffix in suffixes]
    text = same(kafka, shown, "--cluster-metadata-decoder").lines
    assert any('"name":"one"' in line for line in text)
