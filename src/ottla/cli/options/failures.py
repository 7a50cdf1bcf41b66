"""How tools report failures: one line on standard error and exit status 1.

Kafka: org.apache.kafka.server.util.CommandLineUtils, the tools' own error handling.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from ottla.cli.output.next_steps import failure_text
from ottla.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator


class ToolError(Exception):
    """An error that ends a tool; its text is printed as one line."""


@contextmanager
def failures_reported() -> Iterator[None]:
    """Report errors of brokers and arguments in one line and exit with status 1."""
    try:
        yield
    except ToolError as error:
        fail(str(error))
    except ConfigError as error:
        fail(str(error))  # Kafka's tools print it without the class name
    except KafkaError as error:
        fail(failure_text(error))


def fail(*lines: str) -> NoReturn:
    """Print lines on standard error and exit with status 1."""
    for line in lines:
        click.echo(line, err=True)
    sys.exit(1)
