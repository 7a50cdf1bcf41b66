"""The flag --json of commands that list or describe: one JSON document on standard output.

Kafka: none; its tools print tables. Without the flag the output is Kafka's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
_REQUESTED = "ottla.json"


def json_option(function: F) -> F:
    """Add --json; the command calls `wants_json`."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Print one JSON document instead of Kafka's text.",
    )(function)


def _remember(context: click.Context, _option: click.Parameter, value: bool) -> None:
    context.meta[_REQUESTED] = value


def wants_json() -> bool:
    """Whether the running command prints JSON."""
    return bool(click.get_current_context().meta.get(_REQUESTED, False))


def refuse_json_unless(action: str, *allowed: str) -> None:
    """Raise UsageError when --json is given with an action that lists nothing."""
    if wants_json() and action not in allowed:
        names = " and ".join(f"--{name}" for name in allowed)
        raise click.UsageError(f"--json is only supported with {names}")


def print_json(value: object) -> None:
    """Print the document."""
    click.echo(json.dumps(value, indent=2, default=str))
