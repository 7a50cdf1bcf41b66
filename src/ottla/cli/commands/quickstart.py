"""`ottla quickstart`: run a node, a topic and a Spark job on example data in half a minute.

Kafka: the quickstart page of its documentation.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from ottla.cli.options.stop_signals import StopSignals

DEFAULT_PICTURE = Path("ottla-quickstart.png")
EXAMPLES = """
\b
Examples:
  ottla quickstart
  ottla quickstart --no-spark
  ottla quickstart --data-dir quickstart-data --picture flights.png
"""


@click.command("quickstart", epilog=EXAMPLES)
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Keep the data here."
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_PICTURE,
    show_default=True,
    help="File to write the picture to.",
)
@click.option("--spark/--no-spark", default=True, help="Run the Spark job, if Spark is installed.")
def quickstart(data_dir: Path | None, picture: Path, spark: bool) -> None:
    """Start a node, send it the flights of a year, count them by week with Spark, draw the result.

    Only the picture remains afterwards, the data with --data-dir, and in the user's cache an
    archive of Java's classes, with which Spark starts in half the time.
    """
    run_quickstart(data_dir=data_dir, picture=picture, with_spark=spark)


def run_quickstart(
    *,
    data_dir: Path | None = None,
    picture: Path = DEFAULT_PICTURE,
    with_spark: bool = True,
) -> None:
    """Run the quickstart; report failures in one line and end cleanly on Ctrl-C.

    The node ends when this process does, and deletes its own files.
    """
    from ottla.errors import OttlaError

    spark = ExitStack()
    signals = StopSignals(spark.close, is_endless=False)
    try:
        with signals, spark:
            from ottla.quickstart.run import QuickstartOptions, run

            run(QuickstartOptions(data_dir, picture, with_spark), signals, spark)
    except (KeyboardInterrupt, OttlaError, OSError) as error:
        if signals.is_stopping or isinstance(error, KeyboardInterrupt):
            click.echo("\nstopped; nothing is left running", err=True)
            sys.exit(signals.status)
        if isinstance(error, BrokenPipeError):  # nothing can be reported to standard output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        raise click.ClickException(str(error)) from error


@click.command("demo")
def demo() -> None:
    """Start a node, send it a thousand real events, read them back and print a summary.

    Takes a few seconds and removes all files afterwards. `ottla quickstart` adds Spark.
    """
    run_quickstart(with_spark=False)
