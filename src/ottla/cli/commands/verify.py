"""`ottla verify`: check all files of a stopped node, in parallel and resumable.

Kafka: none; kafka-dump-log.sh shows one file at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, closing
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from ottla.cli.options.flags import json_option, print_json, wants_json
from ottla.cli.output.progress import ProgressBar
from ottla.errors import OttlaError
from ottla.server.system.files import RealDirectory
from ottla.storage.layout import INDEX_CACHE, LOCK_FILE, METADATA_LOG
from ottla.verification.findings import Finding, Severity, notice
from ottla.verification.log_directory import check_log_directory
from ottla.verification.partition import PartitionCheck, PartitionReport, StoredPartition
from ottla.verification.tier import check_tier

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from ottla.metadata.image import MetadataImage

EXAMPLES = """
\b
Examples:
  ottla verify ottla-data
  ottla verify /disk1/kafka /disk2/kafka --jobs 4 --state verify.state
  ottla verify ottla-data --tier /mnt/tier --json
\b
Exit codes: 0 nothing is wrong, 1 damage or a file to rebuild was found, 3 it could not be checked.
The node must be stopped; a backup and a branch can be checked at any time.
"""
_UNCHECKED: Final = 3
"""The exit code of a check that did not take place."""


class _Unchecked(click.ClickException):
    exit_code = _UNCHECKED


@click.command("verify", epilog=EXAMPLES)
@click.argument(
    "directories",
    metavar="DIR…",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False),
)
@click.option("--records", is_flag=True, help="Decode every record, too; this decompresses all.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="cores",
    help="Processes that check partitions.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False),
    help="Keep results here: a later run only checks partitions that have changed.",
)
@click.option(
    "--tier",
    type=click.Path(exists=True, file_okay=False),
    help="The directory of remote storage, compared with the topic __remote_log_metadata.",
)
@json_option
def verify(
    directories: tuple[str, ...], *, records: bool, jobs: int, state: str | None, tier: str | None
) -> None:
    """Check every file of a stopped node's log directories without changing any.

    Batches by their checksums, offset order, indexes, leader epochs, producer snapshots,
    transaction indexes, checkpoints, the metadata log and its snapshots. Each finding is one line:
    the file, the problem, its meaning and the next step.
    """
    started_s = time.monotonic()
    try:
        with ExitStack() as locks:
            for path in directories:
                locks.enter_context(_locked(path))
            checked = _check(directories, records=records, jobs=jobs, state=state)
            if tier is not None:
                roots = [RealDirectory(path) for path in directories]
                checked.findings += [
                    (tier, finding) for finding in check_tier(roots, RealDirectory(tier))
                ]
    except (OttlaError, OSError) as error:
        raise _Unchecked(str(error)) from error
    checked.print(time.monotonic() - started_s)
    sys.exit(1 if checked.is_wrong else 0)


class _Checked:
    """The results of all directories."""

    def __init__(self) -> None:
        self.findings: list[tuple[str, Finding]] = []
        """With the directory of each."""
        self.partition_count = 0
        self.skipped_count = 0
        self.bytes_read = 0

    @property
    def is_wrong(self) -> bool:
        """Whether there is more than notices."""
        return any(finding.severity is not Severity.NOTICE for _, finding in self.findings)

    def add(self, path: str, report: PartitionReport) -> None:
        """Take the result of one partition."""
        self.partition_count += 1
        self.bytes_read += report.bytes_read
        self.findings += [(path, finding) for finding in report.findings]

    def print(self, seconds: float) -> None:
        """Print the report as text or JSON."""
        counts = {
            severity: sum(finding.severity is severity for _, finding in self.findings)
            for severity in Severity
        }
        if wants_json():
            findings = [{"directory": path, **finding._asdict()} for path, finding in self.findings]
            print_json(
                {
                    "findings": findings,
                    "counts": counts,
                    "partitions": self.partition_count,
                    "unchanged_partitions": self.skipped_count,
                    "bytes": self.bytes_read,
                    "seconds": round(seconds, 3),
                }
            )
            return
        for path, finding in sorted(self.findings):
            click.echo(f"{path}: {finding}" if path else str(finding))
        unchanged = f" ({self.skipped_count} unchanged)" if self.skipped_count else ""
        found = ", ".join(f"{count} {severity}" for severity, count in counts.items())
        click.echo(
            f"{self.partition_count} partitions{unchanged}, {self.bytes_read / 1e6:,.1f} MB in "
            f"{seconds:.1f} s: {found}"
        )


def _check(
    directories: tuple[str, ...], *, records: bool, jobs: int, state: str | None
) -> _Checked:
    checked, tasks = _Checked(), list[tuple[str, StoredPartition]]()
    image: MetadataImage | None = None
    clusters = dict[str, str]()
    # the directory with the metadata log first: it names the topics of the others
    for path in sorted(directories, key=lambda path: not Path(path, METADATA_LOG).is_dir()):
        result = check_log_directory(RealDirectory(path), path, image)
        image = image or result.image
        checked.findings += [(path, finding) for finding in [*result.findings, *_links(path)]]
        tasks += [(path, facts) for facts in result.partitions]
        if result.cluster_id:
            clusters[result.cluster_id] = path
    if len(clusters) > 1:
        names = ", ".join(f"{path} of cluster {cluster}" for cluster, path in clusters.items())
        raise _Unchecked(f"the directories are not of one node: {names}; check them one by one")
    with ExitStack() as files:
        known, file = _read_state(state), None
        if state is not None:
            file = files.enter_context(Path(state).open("a", encoding="utf-8"))
        _run(checked, tasks, known, file, records=records, jobs=jobs)
    return checked


def _run(
    checked: _Checked,
    tasks: list[tuple[str, StoredPartition]],
    known: dict[str, PartitionReport],
    file: TextIO | None,
    *,
    records: bool,
    jobs: int,
) -> None:
    todo = []
    for path, facts in tasks:
        key = _fingerprint(path, facts, records=records) if file is not None else ""
        report = known.get(key) if key else None
        if report is None:
            todo.append((path, facts, key))
        else:
            checked.skipped_count += 1
            checked.add(path, report)
    reports = _reports(todo, records=records, jobs=jobs)
    with closing(reports), ProgressBar("partitions") as bar:
        for path, key, report in reports:
            bar.advance(len(todo))
            checked.add(path, report)
            if file is not None:
                file.write(json.dumps({"key": key, "report": report}) + "\n")
                file.flush()


def _reports(
    todo: list[tuple[str, StoredPartition, str]], *, records: bool, jobs: int
) -> Generator[tuple[str, str, PartitionReport]]:
    """Yield directory, key and result of each partition as they are done."""
    if jobs == 1 or len(todo) <= 1:
        for path, facts, key in todo:
            yield path, key, check_partition(path, facts, records)
        return
    pool = ProcessPoolExecutor(min(jobs, len(todo)), mp_context=get_context("fork"))
    try:
        running = {
            pool.submit(check_partition, path, facts, records): (path, key)
            for path, facts, key in todo
        }
        for done in as_completed(running):
            yield *running[done], done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def check_partition(path: str, facts: StoredPartition, records: bool) -> PartitionReport:
    """Check one partition; runs in a process of its own."""
    return PartitionCheck(RealDirectory(path), facts, records=records).run()


def _locked(path: str) -> Any:
    """Hold a directory's lock; one without a lock file is not a running node's."""
    if not Path(path, LOCK_FILE).exists():
        return ExitStack()
    try:
        lock = RealDirectory(path).lock(LOCK_FILE)
    except BlockingIOError as error:
        raise _Unchecked(
            f"{path} is used by a running node, whose files change: stop it, or check a branch of "
            "the directory or a backup"
        ) from error
    held = ExitStack()
    held.callback(lock.release)
    return held


def _links(path: str) -> Iterable[Finding]:
    """Name symbolic links: a node follows them, but whoever copies the directory may not."""
    for root, directories, names in os.walk(path):
        for name in (*directories, *names):
            if Path(root, name).is_symlink():
                where = os.path.relpath(f"{root}/{name}", path)
                text = "backups and branches do not follow it"
                yield notice(where, "is a symbolic link", text, "put what it names in its place")
        directories[:] = [name for name in directories if root == path and name != INDEX_CACHE]


def _fingerprint(path: str, facts: StoredPartition, *, records: bool) -> str:
    """Return a hash of the names, sizes and times of a partition's files, and its facts."""
    files = [
        (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns, entry.inode())
        for entry in os.scandir(f"{path}/{facts.name}")
    ]
    text = repr((str(Path(path).resolve()), facts, records, sorted(files)))
    return hashlib.sha256(text.encode()).hexdigest()


def _read_state(path: str | None) -> dict[str, PartitionReport]:
    """Return the kept reports; a line that a killed run tore is left out."""
    if path is None or not Path(path).exists():
        return {}
    known = {}
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            try:
                entry = json.loads(line)
                report = PartitionReport(*entry["report"])
                found = [Finding(Severity(kind), *texts) for kind, *texts in report.findings]
                known[entry["key"]] = report._replace(findings=found)
            except (ValueError, KeyError, TypeError):
                continue
    return known
