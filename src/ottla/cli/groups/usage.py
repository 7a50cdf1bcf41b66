"""Options of the tools for groups, what they select, and the usage errors of several of them.

Kafka: org.apache.kafka.tools.consumer.group.ConsumerGroupCommandOptions,
org.apache.kafka.tools.streams.StreamsGroupCommandOptions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ottla.cli.options.joptsimple import LONG, refuse_both

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

F = TypeVar("F", bound="Callable[..., Any]")


class GroupCommandError(Exception):
    """An error that ends the tool, with Kafka's text."""


class GroupFlags(NamedTuple):
    """The flags that select offsets and the target of a reset."""

    group: tuple[str, ...]
    topic: tuple[str, ...]
    all_topics: bool
    to_offset: int | None
    to_datetime: str | None
    by_duration: str | None
    to_earliest: bool
    to_latest: bool
    shift_by: int | None
    from_file: str | None
    to_current: bool

    @property
    def has_many(self) -> bool:
        """Whether each line of a file names its group: unless there is exactly one --group."""
        return len(self.group) != 1


def _all_of(options: Iterable[Callable[[Any], Any]]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for option in reversed(tuple(options)):
            command = option(command)
        return command

    return decorate


def action_options(kind: str, facts: str, reset: str) -> Callable[[F], F]:
    """Return a decorator that adds the actions of all kinds of groups."""
    return _all_of(
        (
            click.option("--list", "list_", is_flag=True, help=f"List all {kind} groups."),
            click.option("--describe", is_flag=True, help=f"Show {facts}, members or state."),
            click.option("--delete", is_flag=True, help="Delete groups."),
            click.option("--reset-offsets", is_flag=True, help=reset),
            click.option(
                "--delete-offsets", is_flag=True, help="Delete a group's offsets of topics."
            ),
        )
    )


def selection_options(kind: str, flag: str, all_topics: str) -> Callable[[F], F]:
    """Return a decorator that adds the selection of groups and of topics."""
    return _all_of(
        (
            click.option("--group", multiple=True, help="The group; may be repeated."),
            click.option("--all-groups", is_flag=True, help=f"All {kind} groups."),
            click.option(
                f"--{flag}",
                multiple=True,
                metavar="TOPIC[:0,1]",
                help="The topic, or some partitions.",
            ),
            click.option(f"--all-{flag}s", is_flag=True, help=all_topics),
        )
    )


view_options = _all_of(
    (
        click.option("--members", is_flag=True, help="With --describe: the members."),
        click.option(
            "--state",
            is_flag=False,
            flag_value="",
            metavar="[STATES]",
            help="With --describe: the state; with --list: show or filter by states.",
        ),
    )
)
run_options = _all_of(
    (
        click.option("--verbose", is_flag=True, help="With --describe: more columns."),
        click.option("--timeout", type=LONG, default=30_000, help="Time limit in ms."),
    )
)
reset_targets = _all_of(
    (
        click.option("--to-earliest", is_flag=True, help="Reset to the first record."),
        click.option("--to-latest", is_flag=True, help="Reset to the end."),
        click.option("--to-current", is_flag=True, help="Reset to the committed offset."),
        click.option("--to-offset", type=LONG, help="Reset to this offset."),
        click.option("--shift-by", type=LONG, help="Shift offsets by this number, also negative."),
        click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to a time."),
        click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to a time before now."),
        click.option("--from-file", metavar="CSV", help="Reset to the offsets in a file."),
    )
)
reset_modes = _all_of(
    (
        click.option("--dry-run", is_flag=True, help="Only print the new offsets."),
        click.option("--execute", is_flag=True, help="Execute the reset."),
    )
)


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
    chosen = [name for name in ("members", "offsets") if options[name]]
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
    names = [name for name in known if options[name] is not None and options[name] is not False]
    if len(names) > 1:
        refuse_both(names[0], names[1])
    return names[0] if names else None


def check_reset_mode(options: Mapping[str, Any], *, is_required: bool = True) -> None:
    """Refuse a reset with both --execute and --dry-run, and one without them if it is required."""
    if options["dry_run"] and options["execute"]:
        raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if is_required and not options["dry_run"] and not options["execute"]:
        raise click.UsageError("Option [reset-offsets] takes the option: [execute] or [dry-run]")


def require_groups(action: str, options: Mapping[str, Any]) -> None:
    """Refuse an action on groups without a selection of groups."""
    if not options["group"] and not options["all_groups"]:
        name = action.replace("_", "-")
        raise click.UsageError(f"Option [{name}] takes one of these options: [all-groups], [group]")


def words_of(text: str | None, known: tuple[str, ...], noun: str) -> tuple[str, ...]:
    """Return the words of a list in Kafka's spelling; a usage error for an unknown one."""
    if not text:
        return ()
    by_name = {word.lower(): word for word in known}
    requested = [word.strip().lower() for word in text.split(",")]
    if any(word not in by_name for word in requested):
        raise click.UsageError(
            f"Invalid {noun} list '{text}'. Valid {noun.rstrip('s')}s are: {', '.join(known)}"
        )
    return tuple(by_name[word] for word in requested)


def topic_argument(argument: str) -> tuple[str, list[int] | None]:
    """Parse topic or topic:0,1; None means all partitions."""
    topic, colon, ids = argument.partition(":")
    if not colon:
        return topic, None
    if not topic or not ids or ":" in ids:
        raise click.UsageError(
            f"Invalid topic arg '{argument}', expected topic name and partitions"
        )
    if not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", ids):
        raise click.UsageError(f"Invalid partition '{ids}' specified in topic arg '{argument}''")
    return topic, [int(number) for number in ids.split(",")]
