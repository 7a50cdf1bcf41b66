"""`ottla quickstart`: see events flow through a node, and through Spark, in about a minute.

Kafka: the quickstart page of its documentation.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

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
    help="Where the picture is written.",
)
@click.option("--spark/--no-spark", default=True, help="Run the second half on Spark.")
def quickstart(data_dir: Path | None, picture: Path, spark: bool) -> None:
    """Start a node, send it the flights of a year, count them by week with Spark, draw the result.

    Nothing is left behind but the picture, and the data where --data-dir says so.
    """
    run_quickstart(data_dir=data_dir, picture=picture, with_spark=spark)


def run_quickstart(
    *,
    data_dir: Path | None = None,
    picture: Path = DEFAULT_PICTURE,
    with_spark: bool = True,
) -> None:
    """Run it with the manners of a command: one line for a failure, a clean end for Ctrl-C."""
    from ottla.errors import OttlaError
    from ottla.quickstart.run import Wishes, run

    try:
        run(Wishes(data_dir, picture, with_spark))
    except KeyboardInterrupt:
        click.echo("\nstopped; nothing is left running", err=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (OttlaError, OSError) as error:
        raise click.ClickException(str(error)) from error
