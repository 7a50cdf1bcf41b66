"""`ottla dump-log`: print the files of a log directory.

Kafka: bin/kafka-dump-log.sh, org.apache.kafka.tools.DumpLogSegments.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.dump.batches import NO_LIMIT, DumpOptions, dump_log
from ottla.cli.dump.decoders import (
    DECODER_PACKAGE,
    DecoderError,
    coordinator_parser,
    decoder_class_parser,
    metadata_parser,
    remote_log_parser,
)
from ottla.cli.dump.indexes import (
    IndexOptions,
    TimeIndexErrors,
    dump_index,
    dump_producer_snapshot,
    dump_time_index,
    dump_transaction_index,
)
from ottla.cli.options.flags import require, version_option
from ottla.cli.options.joptsimple import INTEGER, ToolCommand
from ottla.errors import OttlaError
from ottla.storage.layout import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    METADATA_SNAPSHOT_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.cli.dump.decoders import Shown
    from ottla.records.record import Record

STRING_DECODER = f"{DECODER_PACKAGE}StringDecoder"
_PRINTING = (
    "print_data_log",
    "offsets_decoder",
    "transaction_log_decoder",
    "cluster_metadata_decoder",
    "remote_log_metadata_decoder",
    "share_group_state_decoder",
    "value_decoder_class",
    "key_decoder_class",
)

EXAMPLES = """
\b
Examples:
  ottla dump-log --files ottla-data/orders-0/00000000000000000000.log --print-data-log
  ottla dump-log --files ottla-data/orders-0/00000000000000000000.index --verify-index-only
  ottla dump-log --cluster-metadata-decoder \\
      --files ottla-data/__cluster_metadata-0/00000000000000000000.log
"""


@click.command("dump-log", cls=ToolCommand, epilog=EXAMPLES)
@version_option
@click.option("--files", metavar="FILE,…", help="REQUIRED. Logs, indexes and snapshots to print.")
@click.option("--print-data-log", is_flag=True, help="Print keys and values too.")
@click.option("--deep-iteration", is_flag=True, help="Print every record, not only batches.")
@click.option("--verify-index-only", is_flag=True, help="Only compare indexes with their log.")
@click.option("--index-sanity-check", is_flag=True, help="Only make the checks of a start.")
@click.option("--skip-record-metadata", is_flag=True, help="Print keys and values only.")
@click.option("--offsets-decoder", is_flag=True, help="Decode __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode __transaction_state.")
@click.option("--share-group-state-decoder", is_flag=True, help="Decode __share_group_state.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="Decode __cluster_metadata.")
@click.option("--remote-log-metadata-decoder", is_flag=True, help="Decode __remote_log_metadata.")
@click.option(
    "--key-decoder-class",
    is_flag=False,
    flag_value=STRING_DECODER,
    metavar="[CLASS]",
    help="Kafka's StringDecoder, IntegerDecoder or LongDecoder, with the package.",
)
@click.option(
    "--value-decoder-class",
    is_flag=False,
    flag_value=STRING_DECODER,
    metavar="[CLASS]",
    help="The same for values.",
)
@click.option(
    "--max-message-size", type=INTEGER, default=5_242_880, help="Largest batch (indexes)."
)
@click.option(
    "--max-bytes", type=INTEGER, default=NO_LIMIT, help="Stop after this number of bytes."
)
def dump_log_command(**flags: Any) -> None:
    """Print log segments, indexes and snapshots, and check whether they agree."""
    require(flags["files"], "files")
    try:
        _Dump(flags).run(flags["files"].split(","))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except FileNotFoundError as error:
        sys.stdout.flush()
        click.echo(f"{error.filename} (No such file or directory)", err=True)
        sys.exit(1)
    except (DecoderError, OttlaError, OSError, ValueError) as error:
        sys.stdout.flush()
        click.echo(str(error), err=True)
        sys.exit(1)


class _Dump:
    """One call: prints the files in order, then the errors found."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self._flags = flags
        self._index_options = IndexOptions(
            flags["index_sanity_check"], flags["verify_index_only"], flags["max_message_size"]
        )
        self._errors = TimeIndexErrors()
        self._mismatches: dict[str, list[tuple[int, int]]] = {}
        self._gaps: dict[str, list[tuple[int, int]]] = {}

    def run(self, names: list[str]) -> None:
        write = sys.stdout.write
        for name in names:
            path = Path(name)
            write(f"Dumping {path}\n")
            self._dump(path, write)
        sys.stdout.flush()
        for line in self._problem_lines():
            click.echo(line, err=True)

    def _dump(self, path: Path, write: Callable[[str], object]) -> None:
        key = str(path.absolute())
        if path.suffix in {LOG_SUFFIX, METADATA_SNAPSHOT_SUFFIX}:
            gaps = dump_log(path, self._log_options(), write)
            if gaps:
                self._gaps.setdefault(key, []).extend(gaps)
        elif path.suffix == INDEX_SUFFIX:
            found = dump_index(path, self._index_options, write)
            if found:
                self._mismatches.setdefault(key, []).extend(found)
        elif path.suffix == TIME_INDEX_SUFFIX:
            dump_time_index(path, self._index_options, self._errors, write)
        elif path.suffix == SNAPSHOT_SUFFIX:
            problem = dump_producer_snapshot(path, write)
            if problem is not None:
                sys.stdout.flush()
                click.echo(problem, err=True)
        elif path.suffix == TRANSACTION_INDEX_SUFFIX:
            dump_transaction_index(path, write)
        else:
            sys.stdout.flush()
            click.echo(f"Ignoring unknown file {path}", err=True)

    def _log_options(self) -> DumpOptions:
        flags = self._flags
        prints = any(flags[name] for name in _PRINTING)
        # Kafka creates the parser even if no records are printed, so a wrong class is an error
        parse = self._parser()
        return DumpOptions(
            is_deep=prints or flags["deep_iteration"],
            skip_record_metadata=flags["skip_record_metadata"],
            max_bytes=flags["max_bytes"],
            parse=parse if prints else None,
        )

    def _parser(self) -> Callable[[Record], Shown]:
        flags = self._flags
        if flags["offsets_decoder"]:
            return coordinator_parser("group", "consumer_group", "share_group", "streams_group")
        if flags["transaction_log_decoder"]:
            return coordinator_parser("transaction")
        if flags["cluster_metadata_decoder"]:
            return metadata_parser
        if flags["remote_log_metadata_decoder"]:
            return remote_log_parser
        if flags["share_group_state_decoder"]:
            return coordinator_parser("share")
        return decoder_class_parser(
            flags["key_decoder_class"] or STRING_DECODER,
            flags["value_decoder_class"] or STRING_DECODER,
        )

    def _problem_lines(self) -> list[str]:
        lines = []
        for name, pairs in self._mismatches.items():
            lines.append(f"Mismatches in :{name}")
            lines += [
                f"  Index offset: {index}, log offset: {log}"
                for index, log in sorted(pairs, reverse=True)
            ]
        lines += self._errors.lines()
        for name, pairs in self._gaps.items():
            lines.append(f"Non-consecutive offsets in {name}")
            lines += [f"  {one} is followed by {two}" for one, two in pairs]
        return lines
