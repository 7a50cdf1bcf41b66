"""`ottla demo`: the first half of the quickstart, which needs the base package only.

Kafka: none.
"""

from __future__ import annotations

import click

from ottla.cli.commands.quickstart import run_quickstart


@click.command("demo")
def demo() -> None:
    """Start a node, send it a thousand real events, read them back and print a summary.

    Takes a few seconds and removes all files afterwards. `ottla quickstart` adds Spark.
    """
    run_quickstart(with_spark=False)
