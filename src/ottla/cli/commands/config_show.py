"""`ottla config show`: print the settings that a node would start with, and their origins.

Kafka: none; bin/kafka-configs.sh --describe --all shows those of a running node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli.options.flags import json_option, print_json, wants_json
from ottla.cli.options.node_config import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.server.node.settings import StartSettings

HIDDEN = "[hidden]"
DEFAULT = "default"

EXAMPLES = """
\b
Examples:
  ottla config show --origin
  ottla config show -c server.properties --origin --given
  KAFKA_LOG_RETENTION_HOURS=1 ottla config show --origin --override listeners=PLAINTEXT://:9092
"""


class Line(NamedTuple):
    """One line of output."""

    name: str
    value: str
    origin: str


@click.group("config", epilog=EXAMPLES, help="Inspect a node's configuration before it starts.")
def config() -> None:
    """Group the subcommands."""


@config.command("show", epilog=EXAMPLES)
@click.option("--config", "-c", "file", metavar="FILE", help="The node's properties file.")
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a property.")
@click.option("--origin", is_flag=True, help="Show the origin of each value.")
@json_option
@click.option("--given", is_flag=True, help="Omit settings at their defaults.")
def show(file: str | None, overrides: tuple[str, ...], origin: bool, given: bool) -> None:
    """Show every setting that `ottla server-start` would use; secrets are hidden.

    Later sources override earlier ones: FILE (or the development node's defaults), KAFKA_…
    variables, OTTLA_… variables, overrides. All errors are reported with their origins (status 1).
    """
    settings = load_settings(file, overrides)
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    lines = [line for line in setting_lines(settings) if not (given and line.origin == DEFAULT)]
    if wants_json():
        print_json([line._asdict() for line in lines])
        return
    width = max((len(line.origin) for line in lines), default=0)
    for line in lines:
        start = f"{line.origin:{width}}  " if origin else ""
        click.echo(f"{start}{line.name}={line.value}")


def setting_lines(settings: StartSettings) -> Iterator[Line]:
    """Yield every setting by name: Kafka's, Ottla's, and those given for plug-ins."""
    from ottla.config.dynamic import definition_of

    config, given = settings.config, settings.given
    own = config.own
    for name in sorted({*config.keys, *own.keys, *given}):
        table = own if name in own.keys else config
        definition = table.keys.get(name)
        origin = given[name].origin if name in given else DEFAULT
        if definition is None:
            known = definition_of(name)
            open_text = known is not None and not known.sensitive
            yield Line(name, given[name].value if open_text else HIDDEN, origin)
        elif definition.sensitive:
            yield Line(name, "null" if table.value(name) is None else HIDDEN, origin)
        elif not definition.internal or name in given:
            text = table.text(name)
            yield Line(name, "null" if text is None else text, origin)
