"""Options of the tools for groups, and the usage errors that several of them report.

Kafka: org.apache.kafka.tools.consumer.group.ConsumerGroupCommandOptions,
org.apache.kafka.tools.streams.StreamsGroupCommandOptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ottla.cli.options.joptsimple import LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

F = TypeVar("F", bound="Callable[..., Any]")
_TARGETS = (
    click.option("--to-earliest", is_flag=True, help="Reset to the first record."),
    click.option("--to-latest", is_flag=True, help="Reset to the end."),
    click.option("--to-current", is_flag=True, help="Reset to the committed offset."),
    click.option("--to-offset", type=LONG, help="Reset to this offset."),
    click.option("--shift-by", type=LONG, help="Shift offsets by this number, also negative."),
    click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to a time."),
    click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to a time before now."),
    click.option("--from-file", metavar="CSV", help="Reset to the offsets in a file."),
)


def reset_targets(command: F) -> F:
    """Add the options that say to which offsets a group is reset."""
    for option in reversed(_TARGETS):
        command = option(command)
    return command


def check_only_with(
    allowed: Mapping[str, Collection[str]], actions: Collection[str], options: Mapping[str, Any]
) -> None:
    """Refuse options without an action that they belong to."""
    for name, of_actions in allowed.items():
        if options[name] not in (None, False) and not set(of_actions) & set(actions):
            raise click.UsageError(
                f"Option(s) [{name}] are unavailable given other options on the command line"
            )


def check_describe(options: Mapping[str, Any]) -> None:
    """Refuse more than one view with --describe, and states to filter by."""
    chosen = [one for one in ("members", "offsets") if options[one]]
    chosen += ["state"] if options["state"] is not None else []
    if len(chosen) > 1:
        raise click.UsageError(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if options["state"]:
        raise click.UsageError("Option [describe] does not take a value for [state]")


def refuse_both(first: str, second: str) -> NoReturn:
    """Refuse two options that cannot be used together."""
    raise click.UsageError(f'Option "[{first}]" can\'t be used with option "[{second}]"')


def words_of(given: str | None, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return the words of a list in Kafka's spelling; a usage error for an unknown one."""
    if not given:
        return ()
    by_name = {word.lower(): word for word in known}
    requested = [word.strip().lower() for word in given.split(",")]
    if any(word not in by_name for word in requested):
        raise click.UsageError(
            f"Invalid {what} list '{given}'. Valid {what.rstrip('s')}s are: {', '.join(known)}"
        )
    return tuple(by_name[word] for word in requested)
