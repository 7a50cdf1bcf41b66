"""`ottla log-repair`: what it shows of damaged logs and what it truncates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.cli.commands.log_repair import log_repair
from ottla.errors import KafkaError
from ottla.raft.log_check import read_recovery_point
from ottla.raft.quorum_state import QuorumStateStore
from ottla.raft.replicated_log import ReplicatedLog
from ottla.records.builder import encode_batch
from ottla.server.system.files import RealDirectory
from ottla.storage.batches import walk_file
from ottla.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from ottla.storage.layout import METADATA_LOG
from ottla.storage.log.config import LogConfig
from ottla.types import TopicPartition
from tests.storage.logs import end, put, send
from tests.storage.sets import A, make, open_set

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

CONFIG = LogConfig(segment_bytes=2000)


def run(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(log_repair, ["--log-dir", str(path), *arguments])


def damage(directory: RealDirectory, path: str, number: int) -> int:
    """Change a byte of a batch's records; return the batch's position."""
    file = directory.open(path)
    position = list(walk_file(file, 0, file.size()))[number].position
    file.write_at(position + 80, b"\x77")
    file.close()
    return position


@pytest.fixture
def directory(tmp_path: Path) -> RealDirectory:
    """Write the log `a-0` of 40 batches in several segments, closed cleanly."""
    directory = RealDirectory(str(tmp_path))
    logs = open_set(directory, config=CONFIG)
    for _ in range(40):
        put(make(logs))
    logs.shutdown()
    return directory


def test_sound_logs(directory: RealDirectory, tmp_path: Path) -> None:
    """One line counts them; a named partition gets a line of its own."""
    assert directory.list("a-0")
    result = run(tmp_path)
    assert (result.exit_code, result.output) == (0, "1 logs checked, 0 damaged\n")
    result = run(tmp_path, "--partition", "a-0")
    assert result.output.startswith("a-0: no damage, offsets 0 to 40\n")
    result = run(tmp_path, "--partition", "a-0", "--truncate")
    assert (result.exit_code, result.output) == (0, "a-0: no damage, offsets 0 to 40\n")


def test_a_damaged_log_is_shown_and_truncated(directory: RealDirectory, tmp_path: Path) -> None:
    """The partition is offline before and served after it."""
    name = [name for name in directory.list("a-0") if name.endswith(".log")][-2]
    position = damage(directory, f"a-0/{name}", 3)
    offset = int(name[:20]) + 3
    result = run(tmp_path)
    assert result.exit_code == 1
    place = f"a-0/{name} is damaged at byte {position} (offset {offset})"
    assert result.output.splitlines() == [
        f"a-0: DAMAGED: {place}: the batch's checksum is wrong",
        f"  {39 - offset} valid batches follow, offsets {offset + 1} to 40",
        "  recovery point: 40",
        f"  --truncate keeps offsets 0 to {offset}",
        "1 logs checked, 1 damaged",
    ]
    directory.remove(".kafka_cleanshutdown")
    result = run(tmp_path, "--partition", "a-0", "--truncate")
    assert result.exit_code == 0
    assert result.output.endswith(f"a-0: truncated, ends at offset {offset}\n")
    logs = open_set(directory, config=CONFIG)
    log = logs.get(A)
    assert log is not None
    assert log.log_end_offset == offset
    assert put(log).first_offset == offset
    assert log.high_watermark <= offset
    logs.shutdown()
    assert run(tmp_path).exit_code == 0


def test_the_start_recovers_what_was_truncated(directory: RealDirectory, tmp_path: Path) -> None:
    """A clean marker is removed, the indexes are made again."""
    names = [name for name in directory.list("a-0") if name.endswith(".log")]
    damage(directory, f"a-0/{names[0]}", 5)
    assert run(tmp_path, "--partition", "a-0", "--truncate").exit_code == 0
    assert not directory.exists(".kafka_cleanshutdown")
    assert [name for name in directory.list("a-0") if name.endswith((".log", ".index"))] == [
        names[0]
    ]
    logs = open_set(directory, config=CONFIG)
    assert [log.log_end_offset for log in logs] == [5]
    logs.shutdown()


def test_a_log_that_ends_too_early(directory: RealDirectory, tmp_path: Path) -> None:
    """The operator accepts the loss: the recovery point is lowered."""
    names = [name for name in directory.list("a-0") if name.endswith(".log")]
    directory.remove(f"a-0/{names[-1]}")
    end = int(names[-1][:20])
    result = run(tmp_path)
    assert result.output.startswith(f"a-0: DAMAGED: ends at offset {end}, but everything below")
    logs = open_set(directory, config=CONFIG)
    assert set(logs.broken) == {A}
    logs.shutdown()
    result = run(tmp_path, "--partition", "a-0", "--truncate")
    assert result.output.endswith(f"a-0: truncated, ends at offset {end}\n")
    logs = open_set(directory, config=CONFIG)
    assert [log.log_end_offset for log in logs] == [end]
    logs.shutdown()


def test_a_torn_write_is_no_damage(directory: RealDirectory, tmp_path: Path) -> None:
    """What lies at or above the recovery point was not flushed."""
    name = [name for name in directory.list("a-0") if name.endswith(".log")][-1]
    file = directory.open(f"a-0/{name}")
    file.append([b"half a batch"])
    file.close()
    result = run(tmp_path)
    assert result.exit_code == 0
    assert "a-0: torn write, removed by the next start: " in result.output


def test_the_metadata_log(tmp_path: Path) -> None:
    """The start is refused until the operator has it truncated."""
    directory = RealDirectory(str(tmp_path))
    log = ReplicatedLog.open(directory, now_ms=0)
    for number in range(6):
        data = encode_batch([(0, None, bytes(50), ())], base_offset=number, leader_epoch=7)
        log.append(data, epoch=7, now_ms=0)
    log.close(is_to_be_flushed=True)
    damage(directory, f"{METADATA_LOG}/{0:020d}.log", 2)
    with pytest.raises(KafkaError, match="ottla log-repair"):
        ReplicatedLog.open(directory, now_ms=0)
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "offset 2" in result.output
    assert "The metadata log in" in result.output
    result = run(tmp_path, "--partition", METADATA_LOG, "--truncate")
    assert result.output.endswith(f"{METADATA_LOG}: truncated, ends at offset 2\n")
    assert read_recovery_point(directory) == 2
    log = ReplicatedLog.open(directory, now_ms=0)
    assert log.end_offset == 2
    log.close(is_to_be_flushed=True)
    result = run(tmp_path, "--new-quorum-state")
    assert result.output == f"{METADATA_LOG}/quorum-state: written with epoch 7\n"
    election = QuorumStateStore(directory, METADATA_LOG).read()
    assert election is not None
    assert election.leader_epoch == 7


def test_wrong_calls(directory: RealDirectory, tmp_path: Path) -> None:
    """Missing options, unknown partitions and directories in use."""
    assert "needs --partition" in run(tmp_path, "--truncate").output
    assert "has no partition b-0" in run(tmp_path, "--partition", "b-0").output
    assert "has no metadata log" in run(tmp_path, "--new-quorum-state").output
    lock = directory.lock(".lock")
    result = run(tmp_path)
    lock.release()
    assert result.exit_code == 1
    assert "Failed to acquire lock" in result.output


def test_help_shows_an_example() -> None:
    """As every command's."""
    assert "ottla log-repair --log-dir" in CliRunner().invoke(log_repair, ["--help"]).output


INDEX = "t-0/00000000000000000000.txnindex"


@pytest.fixture
def aborting(tmp_path: Path) -> RealDirectory:
    """Write the log `t-0`: 1 commits 0 to 2; 1 aborts 4 to 5, while 2 is open from 3 to 6."""
    directory = RealDirectory(str(tmp_path))
    log = make(open_set(directory, config=CONFIG), TopicPartition("t", 0))
    send(log, 1, 0, transactional=True)
    send(log, 1, 1, transactional=True)
    end(log, 1, commit=True)
    send(log, 2, 0, transactional=True)
    send(log, 1, 2, transactional=True)
    end(log, 1, commit=False)
    end(log, 2, commit=False)
    log.release()
    directory.remove(".lock")
    return directory


@pytest.mark.parametrize(
    "stored",
    [
        [],
        [(1, 4, 5, 3)],
        [(1, 4, 5, 6), (2, 3, 6, 7)],
        [(1, 0, 5, 3), (2, 3, 6, 7)],
        [(1, 5, 5, 3), (2, 3, 6, 7)],
        [(1, 0, 2, 3), (1, 4, 5, 3), (2, 3, 6, 7)],
    ],
)
def test_a_transaction_index_that_contradicts_the_records_is_rebuilt(
    aborting: RealDirectory, tmp_path: Path, stored: list[tuple[int, int, int, int]]
) -> None:
    """It lacks an abort, begins elsewhere, hides a commit or has too high a last stable offset."""
    index = TransactionIndex(aborting, INDEX)
    right = index.entries()
    assert right == [(1, 4, 5, 3), (2, 3, 6, 7)]
    result = run(tmp_path)
    assert (result.exit_code, result.output) == (0, "1 logs checked, 0 damaged\n")
    index.replace([AbortedTransaction(*one) for one in stored])
    result = run(tmp_path)
    assert result.exit_code == 1
    assert f"t-0: WRONG INDEX: {INDEX} contradicts the records\n" in result.output
    document = json.loads(run(tmp_path, "--json").output)
    assert document["logs"][0]["wrong_transaction_indexes"] == [INDEX]
    result = run(tmp_path, "--rebuild-transaction-indexes")
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        0,
        f"{INDEX}: rebuilt, 2 aborted transactions",
    )
    assert TransactionIndex(aborting, INDEX).entries() == right
    assert run(tmp_path).exit_code == 0


def test_a_transaction_index_may_know_more_than_the_records_left(
    aborting: RealDirectory, tmp_path: Path
) -> None:
    """Of a transaction that began before the log does, and of one that compaction removed."""
    index = TransactionIndex(aborting, INDEX)
    index.replace([AbortedTransaction(*one) for one in ((9, 1, 3, 0), (1, 3, 5, 2), (2, 0, 6, 7))])
    assert run(tmp_path).exit_code == 0
