"""`ottla backup` and `ottla restore`: a node's directory to another place and back.

Kafka: none.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.backup.backup import Backup
from ottla.backup.manifest import read_backups, read_listed_manifest
from ottla.backup.restore import RestoreRequest, restore
from ottla.backup.store import DirectoryStore, ObjectBackupStore
from ottla.branches.fork_point import ALWAYS_MS, ForkPoint
from ottla.cli.options.flags import json_option, print_json, wants_json
from ottla.cli.options.moments import parse_moment, parse_offsets
from ottla.cli.output.progress import ProgressBar
from ottla.errors import CorruptMessage, OttlaError
from ottla.server.system.files import RealDirectory
from ottla.storage.layout import META_PROPERTIES
from ottla.storage.log.partition_log import parse_partition_name
from ottla.types import Uuid
from ottla.verification.findings import Severity
from ottla.verification.log_directory import check_log_directory
from ottla.verification.partition import PartitionCheck

if TYPE_CHECKING:
    from ottla.backup.store import BackupStore

BACKUP_EXAMPLES = """
\b
Examples:
  ottla backup ottla-data /mnt/backups/node-1
  ottla backup ottla-data s3://backups/node-1 --store-option region=eu-central-1
  ottla backup /mnt/backups/node-1 --list
\b
The node may run. Each node and log directory has a place of its own.
"""
RESTORE_EXAMPLES = """
\b
Examples:
  ottla restore /mnt/backups/node-1 ottla-data
  ottla restore s3://backups/node-1 ottla-data --backup 001764342000000
  ottla restore /mnt/backups/node-1 orders-only --topic orders --at 2026-11-28T15:00:00 --new-ids
\b
A restore that was interrupted goes on where it was: repeat the command.
"""
_option = click.option(
    "--store-option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of the object store's client; credentials come from the usual places.",
)


def _open_store(place: str, options: tuple[str, ...], *, create: bool) -> BackupStore:
    if "://" in place:
        from ottla.storage.remote.managers.object_store import STORE_PREFIX, ObjectStorage

        storage = ObjectStorage()
        named = dict(option.partition("=")[::2] for option in options)
        storage.configure({"url": place, **{STORE_PREFIX + key: named[key] for key in named}})
        return ObjectBackupStore(storage)
    if not create and not Path(place).is_dir():
        raise click.ClickException(f"{place} is no directory")
    return DirectoryStore(RealDirectory(place, create=create))


@click.command("backup", epilog=BACKUP_EXAMPLES)
@click.argument("arguments", metavar="[DIR] PLACE", nargs=-1, required=True)
@click.option("--list", "lists", is_flag=True, help="Show the backups in PLACE.")
@_option
@json_option
def backup(arguments: tuple[str, ...], *, lists: bool, options: tuple[str, ...]) -> None:
    """Store a node's log directory in another directory or an object store.

    All partitions up to their high watermarks of one moment, and the metadata of the cluster:
    topics, settings, ACLs, SCRAM users, quotas, offsets of groups. Only what earlier backups in
    PLACE do not have is stored.
    """
    if len(arguments) != (1 if lists else 2):
        raise click.UsageError("give DIR and PLACE, or PLACE and --list")
    started_s, place = time.monotonic(), arguments[-1]
    try:
        store = _open_store(place, options, create=not lists)
        if lists:
            _list(store)
            return
        source = arguments[0]
        if not Path(source, META_PROPERTIES).exists():
            raise click.ClickException(f"{source} is no log directory: no {META_PROPERTIES}")
        with ProgressBar("partitions") as bar:
            result = Backup(RealDirectory(source), store, now_ms=int(time.time() * 1000)).run(
                lambda _name, total: bar.advance(total)
            )
    except (OttlaError, OSError) as error:
        raise click.ClickException(f"{place}: {error}") from error
    seconds = time.monotonic() - started_s
    if wants_json():
        print_json({**result._asdict(), "seconds": round(seconds, 3)})
        return
    click.echo(
        f"backup {result.backup_id}: {result.partition_count} partitions, "
        f"{result.total_bytes / 1e6:,.1f} MB, {result.stored_bytes / 1e6:,.1f} MB new, "
        f"{seconds:.1f} s"
    )


def _list(store: BackupStore) -> None:
    """Print the backups; ends with 1 when the manifest of one is damaged."""
    backups, problems = list[dict[str, object]](), list[str]()
    for backup_id in read_backups(store):
        made = datetime.fromtimestamp(int(backup_id) / 1000, UTC).isoformat(timespec="seconds")
        try:
            manifest = read_listed_manifest(store, backup_id)
        except CorruptMessage as error:  # the others may be whole
            problems.append(f"{backup_id}  {made}  damaged: {error}")
            continue
        backups.append(
            {
                "backup_id": backup_id,
                "made": made,
                "cluster_id": manifest.cluster_id,
                "node_id": manifest.node_id,
                "partitions": len(manifest.offsets),
                "bytes": sum(file.size for file in manifest.files),
            }
        )
    if wants_json():
        print_json(backups)
    else:
        for one in backups:
            click.echo(
                f"{one['backup_id']}  {one['made']}  node {one['node_id']}  "
                f"{one['partitions']} partitions  {one['bytes']} bytes"
            )
    if problems:
        raise click.ClickException("\n".join(problems))


@click.command("restore", epilog=RESTORE_EXAMPLES)
@click.argument("place")
@click.argument("target", type=click.Path())
@click.option("--backup", "backup_id", default="", metavar="ID", help="By default the newest one.")
@click.option("--at", metavar="TIME", help="Leave out what is later: ISO time (UTC) or ms.")
@click.option("--offset", "offsets", metavar="TOPIC-N=OFFSET", multiple=True, help="An end offset.")
@click.option("--topic", "topics", multiple=True, help="Only this topic and internal ones.")
@click.option("--partition", "partitions", metavar="TOPIC-N", multiple=True, help="Only this one.")
@click.option("--new-ids", is_flag=True, help="A cluster id and a directory id of its own.")
@_option
@json_option
def restore_command(
    place: str,
    target: str,
    *,
    backup_id: str,
    at: str | None,
    offsets: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[str, ...],
    new_ids: bool,
    options: tuple[str, ...],
) -> None:
    """Make a log directory from a backup, and verify it.

    Transactions that were open at that moment are aborted. The directory has the ids of the node
    that was backed up: it must not run alongside it unless --new-ids is given.
    """
    started_s = time.monotonic()
    path = Path(target).resolve()
    try:
        chosen = frozenset(map(parse_partition_name, partitions))
    except ValueError as error:
        raise click.UsageError(f"{error}: give --partition as orders-0") from error
    request = RestoreRequest(
        path.name,
        ForkPoint(parse_moment(at) if at else ALWAYS_MS, parse_offsets(offsets)),
        backup_id,
        frozenset(topics),
        chosen,
        str(Uuid(os.urandom(16))) if new_ids else "",
        Uuid(os.urandom(16)) if new_ids else None,
    )
    try:
        store = _open_store(place, options, create=False)
        with ProgressBar("files") as bar:
            result = restore(
                RealDirectory(str(path.parent), create=True),
                store,
                request,
                now_ms=int(time.time() * 1000),
                on_file=lambda _file, total: bar.advance(total),
            )
        problems = _verify(target)
    except (OttlaError, OSError) as error:
        raise click.ClickException(f"{place}: {error}") from error
    if problems:
        raise click.ClickException(
            f"{target} was restored, but is not sound: {problems[0]}; see ottla verify {target}"
        )
    seconds = time.monotonic() - started_s
    if wants_json():
        document = {**result._asdict(), "branch": result.branch._asdict()}
        print_json({**document, "target": target, "seconds": round(seconds, 3)})
        return
    click.echo(
        f"{target}: backup {result.backup_id}, {result.branch.partition_count} partitions, "
        f"{result.fetched_bytes / 1e6:,.1f} MB fetched, {result.branch.aborted_count} open "
        f"transactions aborted, verified, {seconds:.1f} s"
    )


def _verify(target: str) -> list[str]:
    directory = RealDirectory(target)
    check = check_log_directory(directory, target)
    findings = list(check.findings)
    for partition in check.partitions:
        findings += PartitionCheck(directory, partition, records=False).run().findings
    return [str(finding) for finding in findings if finding.severity is not Severity.NOTICE]
