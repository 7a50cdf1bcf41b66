"""`ottla log-repair`: show damage in the logs of a stopped node, and truncate a log on request.

Kafka: none; kafka-dump-log.sh shows one file at a time, and a start truncates damaged logs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.options.flags import json_option, print_json, wants_json
from ottla.errors import KafkaError
from ottla.raft.log_check import (
    check_log,
    find_snapshots,
    read_recovery_point,
    write_recovery_point,
)
from ottla.raft.quorum_state import ElectionState, QuorumStateStore
from ottla.server.system.files import RealDirectory
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.directories.partition_dir_names import is_log, partition_of
from ottla.storage.indexes.transaction_index import TransactionIndex
from ottla.storage.layout import (
    CLEAN_MARKER,
    METADATA_LOG,
    QUORUM_STATE,
    RECOVERY_POINT_CHECKPOINT,
)
from ottla.storage.log.config import LogConfig
from ottla.storage.log.inspection import base_offsets, inspect_log
from ottla.storage.log.repair import lower_checkpoints, truncate_log
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_recovery import rebuild_indexes
from ottla.verification.partition import examine_log, first_recovered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.storage.log.abort_check import WrongIndex
    from ottla.storage.log.inspection import LogInspection

EXAMPLES = """
\b
Examples:
  ottla log-repair --log-dir ottla-data
  ottla log-repair --log-dir ottla-data --partition orders-0
  ottla log-repair --log-dir ottla-data --partition orders-0 --truncate
  ottla log-repair --log-dir ottla-data --rebuild-indexes
  ottla log-repair --log-dir ottla-data --rebuild-transaction-indexes
\b
Stop the node, and copy the log directory before anything is truncated.
"""
_ABORTS: Final = "aborts"
_ALL_INDEXES: Final = "all"


@click.command("log-repair", epilog=EXAMPLES)
@click.option(
    "--log-dir",
    required=True,
    type=click.Path(exists=True, file_okay=False),
    help="The log directory; no node may use it.",
)
@json_option
@click.option("--partition", metavar="TOPIC-N", help="Only this partition.")
@click.option("--truncate", is_flag=True, help="Remove all records from the first damage on.")
@click.option(
    "--rebuild-indexes",
    "rebuilds_indexes",
    is_flag=True,
    help="Rebuild the indexes of all kinds that contradict the records.",
)
@click.option(
    "--rebuild-transaction-indexes",
    is_flag=True,
    help="Rebuild the indexes of aborted transactions that contradict the records.",
)
@click.option(
    "--new-quorum-state",
    is_flag=True,
    help="Replace a lost quorum-state file; only safe when this node is the only voter.",
)
def log_repair(
    log_dir: str,
    partition: str | None,
    *,
    truncate: bool,
    rebuilds_indexes: bool,
    rebuild_transaction_indexes: bool,
    new_quorum_state: bool,
) -> None:
    """Check every batch of the logs in a directory; truncate a damaged log with --truncate.

    Records below a log's recovery point were flushed to the disk. When such records are damaged or
    missing, a node does not serve the partition, or does not start when it is the metadata log.
    Indexes of aborted transactions are compared with the records. Exits with 1 while damage or a
    wrong index is found.
    """
    rebuild = _ABORTS if rebuild_transaction_indexes else ""
    if rebuilds_indexes:
        rebuild = _ALL_INDEXES
    if wants_json() and (truncate or rebuild or new_quorum_state):
        raise click.UsageError("--json is only supported without options that change files")
    if truncate and partition is None:
        raise click.UsageError("--truncate needs --partition.")
    found = LogDirectory(log_dir, RealDirectory(log_dir))
    try:
        found.lock()
        try:
            if new_quorum_state:
                _write_quorum_state(found)
            else:
                sys.exit(_repair(found, partition, truncate=truncate, rebuild=rebuild))
        finally:
            found.release()
    except (KafkaError, OSError) as error:
        raise click.ClickException(str(error)) from error


class _Log(NamedTuple):
    """A partition's log and its damage."""

    name: str
    inspection: LogInspection
    recovery_point: int
    wrong_indexes: list[WrongIndex]
    wrong_positions: list[str]
    """Offset and time indexes that contradict the records; a node notices some of them."""

    @property
    def is_damaged(self) -> bool:
        """Whether flushed records are damaged or missing."""
        found = self.inspection
        if found.end_offset < self.recovery_point:
            return True
        is_metadata = self.name == METADATA_LOG
        return is_metadata and found.damage is not None and found.damage.following_batches > 0

    def document(self) -> dict[str, object]:
        """Return the JSON of the result."""
        found = self.inspection
        return {
            "partition": self.name,
            "damaged": self.is_damaged,
            "damage": None if found.damage is None else str(found.damage),
            "start_offset": found.start_offset,
            "end_offset": found.end_offset,
            "recovery_point": self.recovery_point,
            "wrong_transaction_indexes": [index.path for index in self.wrong_indexes],
            "wrong_indexes": self.wrong_positions,
        }

    def lines(self) -> Iterator[str]:
        """Yield the description, the first line with the result."""
        found, damage = self.inspection, self.inspection.damage
        for path in (*(index.path for index in self.wrong_indexes), *self.wrong_positions):
            yield f"{self.name}: WRONG INDEX: {path} contradicts the records"
        if damage is None and not self.is_damaged:
            yield f"{self.name}: no damage, offsets {found.start_offset} to {found.end_offset}"
            return
        if damage is None:
            yield (
                f"{self.name}: DAMAGED: ends at offset {found.end_offset}, but everything below "
                f"offset {self.recovery_point} was flushed"
            )
        else:
            result = "DAMAGED" if self.is_damaged else "torn write, removed by the next start"
            yield f"{self.name}: {result}: {damage}"
            if damage.following_batches:
                yield (
                    f"  {damage.following_batches} valid batches follow, offsets "
                    f"{damage.following_offset} to {damage.end_offset}"
                )
        yield f"  recovery point: {self.recovery_point}"
        yield f"  --truncate keeps offsets {found.start_offset} to {found.end_offset}"


def _repair(log_dir: LogDirectory, partition: str | None, *, truncate: bool, rebuild: str) -> int:
    logs = [_inspect(log_dir, name) for name in _names(log_dir, partition)]
    for log in logs:
        is_wrong = log.is_damaged or bool(log.wrong_indexes) or bool(log.wrong_positions)
        is_shown = partition is not None or log.inspection.damage is not None or is_wrong
        if is_shown and not wants_json():
            click.echo("\n".join(log.lines()))
    damaged = [log for log in logs if log.is_damaged]
    wrong_indexes = [index for log in logs for index in log.wrong_indexes]
    wrong_positions = [path for log in logs for path in log.wrong_positions]
    problem = _metadata_problem(log_dir) if METADATA_LOG in [log.name for log in logs] else ""
    if truncate:
        for log in logs:
            _truncate(log_dir, log)
        return 0
    if rebuild:
        _rebuild(log_dir, wrong_indexes, wrong_positions if rebuild == _ALL_INDEXES else [])
        return 0
    is_right = not (damaged or problem or wrong_indexes or wrong_positions)
    if wants_json():
        print_json({"logs": [log.document() for log in logs], "problem": problem or None})
        return 0 if is_right else 1
    if problem:
        click.echo(problem)
    _print_indexes(len(wrong_indexes), len(wrong_positions))
    click.echo(f"{len(logs)} logs checked, {len(damaged)} damaged")
    return 0 if is_right else 1


def _print_indexes(aborts: int, positions: int) -> None:
    if aborts:
        click.echo(
            f"{aborts} transaction indexes are wrong: read_committed consumers may get "
            "records of aborted transactions; use --rebuild-transaction-indexes"
        )
    if positions:
        click.echo(
            f"{positions} offset and time indexes are wrong: reads may begin too late; "
            "use --rebuild-indexes"
        )


def _names(log_dir: LogDirectory, partition: str | None) -> list[str]:
    directory = log_dir.directory
    if partition is None:
        return [
            name
            for name in directory.list()
            if directory.is_directory(name) and partition_of(name) and is_log(directory, name)
        ]
    if partition_of(partition) is None or not directory.is_directory(partition):
        raise click.ClickException(f"{log_dir.path} has no partition {partition}.")
    return [partition]


def _inspect(log_dir: LogDirectory, name: str) -> _Log:
    directory = log_dir.directory
    if name == METADATA_LOG:
        found = inspect_log(directory, name, may_have_gaps=False)
        return _Log(name, found, read_recovery_point(directory), [], [])
    partition = partition_of(name)
    assert partition is not None, "only names of partitions are inspected"
    recovery_point = log_dir.read_offsets(RECOVERY_POINT_CHECKPOINT).get(partition, 0)
    recovered_from = first_recovered(
        base_offsets(directory, name), recovery_point, is_clean=directory.exists(CLEAN_MARKER)
    )
    log = examine_log(directory, name, recovered_from=recovered_from)
    wrong = [finding.path for finding in log.index_findings]
    return _Log(name, log.inspection, recovery_point, log.wrong_indexes, wrong)


def _rebuild(log_dir: LogDirectory, aborts: list[WrongIndex], positions: list[str]) -> None:
    """Rebuild transaction indexes, and both other indexes of the segments of `positions`."""
    for index in aborts:
        TransactionIndex(log_dir.directory, index.path).replace(index.entries)
        click.echo(f"{index.path}: rebuilt, {len(index.entries)} aborted transactions")
    for path in sorted({path.rpartition(".")[0] for path in positions}):
        name, _, base_offset = path.rpartition("/")
        segment = Segment.open(
            log_dir.directory, name, int(base_offset), config=LogConfig(), now_ms=0
        )
        try:
            rebuild_indexes(segment)
        finally:
            segment.close_files()
        click.echo(f"{path}: offset and time index rebuilt")


def _metadata_problem(log_dir: LogDirectory) -> str:
    """Return why a start would refuse the metadata log."""
    try:
        check_log(log_dir.directory, log_dir.path)
    except KafkaError as error:
        return str(error)
    return ""


def _truncate(log_dir: LogDirectory, log: _Log) -> None:
    end_offset = log.inspection.end_offset
    directory = log_dir.directory
    if log.inspection.damage is None and not log.is_damaged:
        return
    if log.name == METADATA_LOG:
        write_recovery_point(directory, end_offset)
    else:
        partition = partition_of(log.name)
        assert partition is not None, "only names of partitions are inspected"
        lower_checkpoints(log_dir, partition, end_offset)
    truncate_log(directory, log.name, log.inspection)
    click.echo(f"{log.name}: truncated, ends at offset {end_offset}")


def _write_quorum_state(log_dir: LogDirectory) -> None:
    directory = log_dir.directory
    if not directory.is_directory(METADATA_LOG):
        raise click.ClickException(f"{log_dir.path} has no metadata log.")
    found = inspect_log(directory, METADATA_LOG, may_have_gaps=False)
    epochs = [snapshot.leader_epoch for snapshot in find_snapshots(directory)]
    epoch = max([found.last_epoch, *epochs, 0])
    QuorumStateStore(directory, METADATA_LOG).write(ElectionState(epoch), kraft_version=1)
    click.echo(f"{METADATA_LOG}/{QUORUM_STATE}: written with epoch {epoch}")
