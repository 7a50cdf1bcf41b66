"""`ottla quickstart`: see events flow through a node, and through Spark, in about a minute.

Kafka: the quickstart page of its documentation.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from types import FrameType

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
    default=Path("ottla-quickstart.png"),
    show_default=True,
    help="Where the picture is written.",
)
@click.option("--spark/--no-spark", default=True, help="Run the second half on Spark.")
def quickstart(data_dir: Path | None, picture: Path, spark: bool) -> None:
    """Start a node, send it the flights of a year, count them by week with Spark, draw the result.

    Nothing is left behind but the picture, and the data where --data-dir says so.
    """
    from ottla.errors import OttlaError
    from ottla.quickstart.run import Wishes, run

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        run(Wishes(data_dir, picture, spark))
    except KeyboardInterrupt:
        click.echo("\nstopped; nothing is left running", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except (OttlaError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """End like Ctrl-C: everything is cleaned up on the way out."""
    raise KeyboardInterrupt
