"""`ottla sql`: query topics with SQL, from log directories or from brokers.

Kafka: none.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from datetime import date, datetime, time
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.options.connection import read_file
from ottla.cli.options.flags import bootstrap_option, version_option
from ottla.cli.output.failures import ToolError, failures_reported
from ottla.cli.output.tables import columns
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE_ROWS: Final = 1000
"""Shown as a table, whose widths need all of them; CSV and JSON have no limit."""

_NOT_OF_NEWEST: Final = ("end_offset", "start_time", "end_time")
"""Limits of a statement that would make older rows of a key the newest ones."""
EXAMPLES = """
\b
Examples:
  ottla sql "select * from orders limit 10" --dir ottla-data
  ottla sql "select partition, count(*) from orders group by 1" --bootstrap-server localhost:9092
  ottla sql "select user, sum(amount) from orders where timestamp >= '2026-01-01' group by 1" \\
      --dir ottla-data --value json
  ottla sql 'select * from orders where partition = 0 and "offset" >= 100' --dir ottla-data \\
      --value avro --value-schema @order.avsc --format csv
  ottla sql "select * from prices" --dir ottla-data --latest-per-key --format json
\b
Columns: topic, partition, "offset", timestamp, timestamp_type, key, value, headers; with json and
avro the fields of the value instead of it. Files are read up to the high watermark that the node
wrote last, at most five seconds ago. Needs pip install '.[tables]' in
Ottla's source tree.
"""


def scan_options(function: Any) -> Any:
    """Add the flags that say where topics are, and what their keys and values are."""
    for option in (
        click.option("--dir", "data_dirs", multiple=True, metavar="DIR", help="A log directory."),
        click.option("--tier", metavar="DIR|URL", help="The remote storage of its nodes."),
        bootstrap_option,
        click.option("--command-config", metavar="FILE", help="Settings of the client."),
        click.option("--value", default="string", metavar="FORMAT", help="json, avro, bytes, …"),
        click.option("--value-schema", metavar="TEXT|@FILE", help='"id bigint", or Avro.'),
        click.option("--key", default="string", metavar="FORMAT", help="string, bytes, long, …"),
        click.option(
            "--isolation",
            type=click.Choice(["read_committed", "read_uncommitted"]),
            default="read_committed",
            help="Whether records of aborted and open transactions are left out.",
        ),
    ):
        function = option(function)
    return function


@click.command("sql", epilog=EXAMPLES)
@version_option
@click.argument("statement")
@scan_options
@click.option("--as-of", metavar="TIME", help="The log as it was then, as 2026-01-31T12:00.")
@click.option("--latest-per-key", is_flag=True, help="Only the newest record of each key.")
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    help="JSON has one object a line.",
)
def sql(statement: str, **options: Any) -> None:
    """Query topics with SQL."""
    with failures_reported():
        tables = needed("ottla.tables.sql", "duckdb", "tables")
        arguments = scan_arguments(options)
        try:
            as_of = options["as_of"] and datetime.fromisoformat(options["as_of"])
        except ValueError as error:
            raise ToolError(str(error)) from error
        arguments |= {
            "as_of": as_of or None,
            "latest_per_key": options["latest_per_key"],
            "flatten": True,
        }
        scan = import_module("ottla.tables.table_scan").scan

        def open_scan(topic: str, reads: dict[str, Any]) -> Any:
            if options["latest_per_key"]:
                reads = {name: one for name, one in reads.items() if name not in _NOT_OF_NEWEST}
            return scan(topic, **{**arguments, **reads})

        try:
            names, rows = tables.execute(statement, open_scan)
            _print(names, rows, options["output"])
        except KafkaError as error:
            hint = ""
            if "not found in FROM clause" in error.message and isinstance(arguments["value"], str):
                hint = " (the fields of values are columns with --value json or avro)"
            raise ToolError(error.message + hint) from error
        except BrokenPipeError:  # the reader has closed the pipe, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            raise ToolError(str(error)) from error


def needed(module: str, package: str, extra: str) -> Any:
    """Import a module and the package that it needs; ToolError without the extra."""
    try:
        import_module(package)
        return import_module(module)
    except ModuleNotFoundError as error:
        text = f"{error}: this command needs pip install '.[{extra}]' in Ottla's source tree"
        raise ToolError(text) from error


def scan_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `scan` for the flags; ToolError for invalid ones."""
    settings = read_file(options["command_config"])
    servers = options["bootstrap_server"]
    data_dirs = list(options["data_dirs"])
    if data_dirs:
        servers = None  # a profile's, as none was given
    elif not servers:
        raise ToolError("give --dir DIR for files, or --bootstrap-server for brokers")
    values = import_module("ottla.tables.values")
    value: Any = options["value"]
    schema = _schema(options["value_schema"])
    try:
        if value == "avro":
            if schema is None:
                raise ToolError("--value avro needs --value-schema @FILE with the Avro schema")
            value = values.Avro(json.loads(schema))
        elif value == "json" and schema is not None:
            value = values.Json(schema)
        elif schema is not None:
            raise ToolError(f"--value-schema is of json and avro, not of {value}")
    except ValueError as error:
        raise ToolError(str(error)) from error
    return {
        "data_dirs": data_dirs or None,
        "tier": options["tier"],
        "bootstrap_servers": servers,
        "config": settings if servers else None,
        "value": value,
        "key": options["key"],
        "isolation": options["isolation"],
    }


def _schema(given: str | None) -> str | None:
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"cannot read {given[1:]}: {error}") from error


def _print(names: list[str], rows: Iterator[tuple[Any, ...]], output: str) -> None:
    if output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(value) for value in row] for row in rows)
    elif output == "json":
        for row in rows:
            line = json.dumps(dict(zip(names, row, strict=True)), default=_text, ensure_ascii=False)
            sys.stdout.write(line + "\n")
    else:
        shown = [[_text(value) for value in row] for row in islice(rows, TABLE_ROWS + 1)]
        click.echo(columns({name: f"{len(name)}+" for name in names}, shown[:TABLE_ROWS]))
        if len(shown) > TABLE_ROWS:
            click.echo(f"… only {TABLE_ROWS} rows are shown; --format csv has all", err=True)
    sys.stdout.flush()


def _text(value: Any) -> Any:
    """Return a value for a cell: bytes as text or hexadecimal digits, times by ISO 8601."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, dict | list):
        return json.dumps(value, default=_text, ensure_ascii=False)
    return value if value is None or isinstance(value, int | float) else str(value)
