"""Deprecated flags and warnings that the two performance tools of consumers share.

Kafka: org.apache.kafka.tools.{ConsumerPerformance, ShareConsumerPerformance}.
"""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.options.joptsimple import refuse_both


def accept_old_flags(flags: dict[str, Any]) -> None:
    """Warn about deprecated flags, and store --messages as the number of records."""
    if (flags["messages"] is None) == (flags["num_records"] is None):
        raise click.UsageError(
            "Exactly one of the following arguments is required: [messages], [num-records]"
        )
    if flags["consumer_config"] and flags["command_config"]:
        refuse_both("consumer.config", "command-config")
    if flags["messages"] is not None:
        click.echo("Warning: --messages is deprecated. Use --num-records instead.")
        flags["num_records"] = flags["messages"]
    if flags["consumer_config"]:
        click.echo("Warning: --consumer.config is deprecated. Use --command-config instead.")


def warn_of_timeout(timeout_ms: int) -> None:
    """Print the warning that fewer records were read than requested."""
    click.echo(
        "WARNING: Exiting before consuming the expected number of records: timeout "
        f"({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
    )
