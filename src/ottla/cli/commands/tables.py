"""`ottla tables`: keep an Iceberg table equal to a topic, and compact its files.

Kafka: none; Connect's sink for Iceberg does the same.
"""

from __future__ import annotations

import re
import time
from importlib import import_module
from typing import Any, Final

import click

from ottla.cli.commands.sql import needed, scan_arguments, scan_options
from ottla.cli.options.connection import key_values
from ottla.cli.options.flags import version_option
from ottla.cli.output.failures import ToolError, failures_reported
from ottla.errors import KafkaError

EXAMPLES = """
\b
Examples:
  ottla tables sync orders --table lake.orders --dir ottla-data --value json \\
      --catalog sqlite:////data/catalog.db --warehouse file:///data/warehouse
  ottla tables sync orders --table lake.orders --bootstrap-server localhost:9092 --value avro \\
      --value-schema @order.avsc --catalog production --follow
  ottla tables compact orders --table lake.orders --catalog production
\b
A catalog is the URI of a database (SQLite, PostgreSQL) or the name of one in ~/.pyiceberg.yaml.
Each commit has the offsets in its snapshot's summary: a sync that was killed continues after them.
Needs pip install '.[tables,iceberg]' in Ottla's source tree.
"""
FOLLOW_S: Final = 10.0
"""Between looks for new records: each commit makes files."""
_SECRET: Final = re.compile(
    r"(://[^:@/\s]*:)\S*(?=@)|([?&]\w*(?:password|secret|token)\w*=)[^&\s]*", re.IGNORECASE
)
"""In a catalog's URI, also in an invalid one: a user's password, and those among its parameters."""


@click.group("tables", epilog=EXAMPLES)
def tables() -> None:
    """Keep Iceberg tables equal to topics."""


def _catalog_options(function: Any) -> Any:
    """Add the flags that say which table."""
    for option in (
        click.option("--table", required=True, metavar="NAMESPACE.NAME", help="The table."),
        click.option("--catalog", required=True, metavar="URI|NAME", help="Its catalog."),
        click.option("--warehouse", metavar="URI", help="Where a catalog of a URI keeps files."),
        click.option(
            "--catalog-property", multiple=True, metavar="NAME=VALUE", help="Others of pyiceberg."
        ),
    ):
        function = option(function)
    return function


@tables.command("sync", epilog=EXAMPLES)
@version_option
@click.argument("topic")
@_catalog_options
@scan_options
@click.option(
    "--partition-by",
    type=click.Choice(["none", "hour", "day", "month", "year"]),
    default="day",
    help="Hidden partitions of a new table by the records' time.",
)
@click.option("--rows-per-commit", type=click.IntRange(1), default=1_000_000, help="At most.")
@click.option("--skip-deleted", is_flag=True, help="Continue after records that retention deleted.")
@click.option("--follow", is_flag=True, help="Go on with new records, until it is stopped.")
@click.option("--interval", type=click.FloatRange(0.1), default=FOLLOW_S, help="Seconds, for that.")
def sync(topic: str, **options: Any) -> None:
    """Add a topic's new records to an Iceberg table, each once."""
    with failures_reported():
        catalog = _catalog(options)
        iceberg = needed("ottla.tables.iceberg", "pyiceberg", "iceberg")
        is_retriable = import_module("ottla.clients.cluster_reader").is_retriable
        arguments = scan_arguments(options)
        value = arguments.pop("value")
        sync_options = iceberg.SyncOptions(
            topic,
            options["table"],
            arguments,
            iceberg.Json if value == "json" else lambda: value,
            options["partition_by"],
            options["rows_per_commit"],
            options["skip_deleted"],
        )
        while True:
            try:
                for done in iceberg.TableSync(catalog, sync_options).run():
                    offsets = ", ".join(f"{part}:{end}" for part, end in done.offsets.items())
                    click.echo(f"{done.rows} rows up to {offsets} in snapshot {done.snapshot_id}")
            except KafkaError as error:
                if not (options["follow"] and is_retriable(error)):
                    raise ToolError(error.message) from error
                click.echo(error.message, err=True)
            except OSError as error:
                raise ToolError(str(error)) from error
            if not options["follow"]:
                return
            time.sleep(options["interval"])


@tables.command("compact", epilog=EXAMPLES)
@version_option
@click.argument("topic")
@_catalog_options
@click.option("--min-files", type=click.IntRange(2), default=4, help="Of a partition to rewrite.")
def compact(topic: str, **options: Any) -> None:
    """Rewrite the small files of each partition of a topic's table as one."""
    with failures_reported():
        catalog = _catalog(options)
        iceberg = needed("ottla.tables.iceberg", "pyiceberg", "iceberg")
        exceptions = import_module("pyiceberg.exceptions")
        try:
            table = catalog.load_table(options["table"])
            removed = iceberg.compact(table, topic, min_files=options["min_files"])
        except KafkaError as error:
            raise ToolError(error.message) from error
        except exceptions.NoSuchTableError as error:
            raise ToolError(f"there is no table {options['table']}") from error
        except exceptions.CommitFailedException as error:
            raise ToolError("another writer committed meanwhile; nothing was changed") from error
        click.echo(f"{removed} files fewer")


def _catalog(options: dict[str, Any]) -> Any:
    """Open the catalog; ToolError for one that is none."""
    load_catalog = needed("pyiceberg.catalog", "pyiceberg", "iceberg").load_catalog
    if "." not in options["table"]:
        raise ToolError(f"--table {options['table']} needs a namespace, as lake.orders")
    properties = key_values(options["catalog_property"])
    if options["warehouse"]:
        properties["warehouse"] = options["warehouse"]
    name = options["catalog"]
    if "://" in name:
        properties = {"type": "sql", "uri": name, **properties}
        name = "ottla"
    try:
        return load_catalog(name, **properties)
    except Exception as error:  # noqa: BLE001 - of any catalog's library
        text, *_ = str(error).splitlines() or [type(error).__name__]
        line = f"catalog {options['catalog']}: {text}"
        raise ToolError(_SECRET.sub(r"\1\2***", line)) from None
