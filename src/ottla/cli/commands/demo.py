"""`ottla demo`: the first half of the quickstart, with nothing but the base package.

Kafka: none.
"""

from __future__ import annotations

import click

from ottla.cli.commands.quickstart import run_quickstart


@click.command("demo")
def demo() -> None:
    """Start a node, send it a thousand real events, read them back, show them: a few seconds.

    Nothing is left behind. `ottla quickstart` goes on with Spark.
    """
    run_quickstart(with_spark=False)
