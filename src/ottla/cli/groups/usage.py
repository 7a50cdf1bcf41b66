"""Options of the tools for groups, and the usage errors that several of them report.

Kafka: org.apache.kafka.tools.consumer.group.ConsumerGroupCommandOptions,
org.apache.kafka.tools.streams.StreamsGroupCommandOptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ottla.cli.options.joptsimple import LONG, refuse_both

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

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
    """Add the options for the target of a reset."""
    for option in reversed(_TARGETS):
        command = option(command)
    return command


def check_only_with(
    allowed: Mapping[str, Collection[str]], actions: Collection[str], options: Mapping[str, Any]
) -> None:
    """Refuse options without an action that takes them."""
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


def scenario_of(known: Collection[str], options: Mapping[str, Any]) -> str | None:
    """Return the target of a reset, if there is one; more than one is refused."""
    # 0 is a value, although it equals False
    given = [name for name in known if options[name] is not None and options[name] is not False]
    if len(given) > 1:
        refuse_both(given[0], given[1])
    return given[0] if given else None


def refuse_without_scenario(known: Iterable[str]) -> NoReturn:
    """Refuse a reset without a target."""
    names = ", ".join(f"[{name.replace('_', '-')}]" for name in sorted(known))
    raise click.UsageError(
        f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]"
    )


def refuse_without_scope() -> NoReturn:
    """Refuse a reset without a selection of topics."""
    raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")


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
