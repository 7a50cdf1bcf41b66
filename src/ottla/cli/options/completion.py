"""Shell completion of the names of topics and groups in the cluster.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clients.blocking import Admin

_TIMEOUT_MS: Final = 2000


class _Names(click.types.StringParamType):
    """A text completed with names in the cluster; none if the cluster is unreachable."""

    def __init__(self, names: Callable[[Admin], Iterable[str]]) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with the typed text."""
        found = _cluster_names(ctx, self._names)
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _cluster_names(ctx: click.Context, names: Callable[[Admin], Iterable[str]]) -> list[str]:
    from ottla.cli.options.connection import open_admin
    from ottla.errors import ConfigError, OttlaError

    servers: Any = ctx.params.get("bootstrap_server") or ctx.lookup_default("bootstrap_server")
    config: Any = ctx.params.get("command_config") or ctx.lookup_default("command_config")
    if not servers:
        return []
    try:
        with open_admin(servers, config, default_api_timeout_ms=_TIMEOUT_MS, warn=False) as admin:
            return sorted(names(admin))
    except (OttlaError, ConfigError, OSError, click.ClickException):
        return []  # a shell shows no errors while a line is typed


def complete_names(command: click.Command) -> None:
    """Let the shell complete --topic and --group of a command and its subcommands."""
    types = {
        "topic": _Names(lambda admin: (topic.name for topic in admin.list_topics())),
        "group": _Names(lambda admin: (group.group_id for group in admin.list_groups())),
    }
    for option in command.params:
        if option.name in types and type(option.type) is click.types.StringParamType:
            option.type = types[option.name]
    if isinstance(command, click.Group):
        for one in command.commands.values():
            complete_names(one)
