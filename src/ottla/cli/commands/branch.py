"""`ottla branch`: fork a stopped node's log directory by hard links.

Kafka: none.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import click

from ottla.branches.branch import BranchRequest, DirectoryBranch
from ottla.branches.fork_point import ALWAYS_MS, ForkPoint
from ottla.cli.options.flags import json_option, print_json, wants_json
from ottla.cli.options.moments import parse_moment, parse_offsets
from ottla.errors import OttlaError
from ottla.server.system.files import RealDirectory
from ottla.storage.directories.log_dir import LogDirectory
from ottla.storage.layout import META_PROPERTIES
from ottla.types import Uuid

EXAMPLES = """
\b
Examples:
  ottla branch ottla-data experiment
  ottla branch ottla-data before-the-bug --at 2026-11-28T15:00:00
  ottla branch ottla-data one-topic --topic orders --offset orders-0=5000
\b
Stop the node first. Source and target must be on one file system. A node that runs on the branch
alongside the first one needs listeners of its own.
"""


@click.command("branch", epilog=EXAMPLES)
@click.argument("source", type=click.Path(exists=True, file_okay=False))
@click.argument("target", type=click.Path())
@click.option("--at", metavar="TIME", help="Leave out what is later: ISO time (UTC) or ms.")
@click.option(
    "--offset",
    "offsets",
    metavar="TOPIC-N=OFFSET",
    multiple=True,
    help="The end offset of a partition; may be repeated.",
)
@click.option(
    "--topic", "topics", multiple=True, help="Only this topic and internal ones; may be repeated."
)
@click.option(
    "--same-ids",
    is_flag=True,
    help="Keep cluster id and directory id: the branch takes the place of the source.",
)
@json_option
def branch(
    source: str,
    target: str,
    *,
    at: str | None,
    offsets: tuple[str, ...],
    topics: tuple[str, ...],
    same_ids: bool,
) -> None:
    """Fork a stopped node's log directory into a new directory.

    Sealed segments are shared by hard links: a branch of any size takes about a second and hardly
    any space. Topics, settings, users and the offsets of groups are part of it. Transactions that
    are open at the fork point are aborted in the branch.
    """
    started_s = time.monotonic()
    point = ForkPoint(parse_moment(at) if at else ALWAYS_MS, parse_offsets(offsets))
    root = os.path.commonpath((Path(source).resolve().parent, Path(target).resolve().parent))
    request = BranchRequest(
        os.path.relpath(Path(source).resolve(), root),
        os.path.relpath(Path(target).resolve(), root),
        point,
        frozenset(topics),
        "" if same_ids else str(Uuid(os.urandom(16))),
        None if same_ids else Uuid(os.urandom(16)),
    )
    if not Path(source, META_PROPERTIES).exists():
        raise click.ClickException(f"{source} is no log directory: it has no {META_PROPERTIES}")
    log_dir = LogDirectory(source, RealDirectory(source))
    try:
        log_dir.lock()
        try:
            result = DirectoryBranch(
                RealDirectory(root), request, now_ms=int(time.time() * 1000)
            ).run()
        finally:
            log_dir.release()
    except OSError as error:
        step = "; put it on the file system of the source" if error.errno == errno.EXDEV else ""
        raise click.ClickException(f"{target}: {error}{step}") from error
    except OttlaError as error:
        raise click.ClickException(str(error)) from error
    seconds = time.monotonic() - started_s
    if wants_json():
        print_json({"target": target, **result._asdict(), "seconds": round(seconds, 3)})
        return
    click.echo(
        f"{target}: {result.partition_count} partitions, "
        f"{result.linked_bytes / 1e6:,.1f} MB shared, "
        f"{result.copied_bytes / 1e6:,.1f} MB copied, {result.aborted_count} open transactions "
        f"aborted, {seconds:.2f} s"
    )
