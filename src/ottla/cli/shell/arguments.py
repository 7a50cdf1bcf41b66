"""Parses the commands of the metadata shell, with the texts of Kafka's parser.

Kafka: org.apache.kafka.shell.command.Commands, which uses net.sourceforge.argparse4j.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.options.joptsimple import java_integer
from ottla.cli.shell.image_tree import ShellError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_HELP_FLAGS: Final = ("-h", "--help", "--hel", "--he", "--h")
_NUMBER: Final = re.compile(r"-\d+|-\d*\.\d+")
_COLUMN: Final = 25
HELP_ROWS: Final = (
    "",
    "optional arguments:",
    "  -h, --help             show this help message and exit",
)


class Arguments(NamedTuple):
    """The positional arguments of a command: name, number and help."""

    name: str
    number: str
    help: str

    @property
    def usage(self) -> str:
        """The arguments in a usage line."""
        name = self.name
        many = f"[{name} [{name} ...]]"
        return {"*": many, "+": f"{name} {many[len(name) + 2 : -1]}", "?": f"[{name}]"}.get(
            self.number, name
        )


class CommandType(NamedTuple):
    """A command as `help` and `man` describe it."""

    description: str
    shell_only: bool = False
    arguments: Arguments | None = None
    help_rows: tuple[str, ...] = ()
    """The description in Kafka's columns, when it takes more than one line."""


COMMANDS: Final[Mapping[str, CommandType]] = {
    "cat": CommandType(
        "Show the contents of metadata files.",
        arguments=Arguments("targets", "+", "The metadata files to display."),
    ),
    "cd": CommandType(
        "Set the current working directory.",
        shell_only=True,
        arguments=Arguments("target", "?", "The directory to change to."),
    ),
    "exit": CommandType("Exit the metadata shell.", shell_only=True),
    "find": CommandType(
        "Search for nodes in the directory hierarchy.",
        arguments=Arguments("paths", "*", "The paths to start at."),
    ),
    "help": CommandType("Display this help message.", shell_only=True),
    "history": CommandType(
        "Print command history.",
        shell_only=True,
        arguments=Arguments("numEntriesToShow", "?", "The number of entries to show."),
    ),
    "ls": CommandType(
        "List metadata nodes.",
        arguments=Arguments("targets", "*", "The metadata node paths to list."),
    ),
    "man": CommandType(
        "Show the help text for a specific command.",
        shell_only=True,
        arguments=Arguments("cmd", "1", "The command to get help text for."),
    ),
    "pwd": CommandType("Print the current working directory.", shell_only=True),
    "tree": CommandType(
        "Show the contents of metadata nodes in a tree structure.",
        arguments=Arguments("targets", "+", "The metadata nodes to display."),
        help_rows=("Show the contents  of  metadata  nodes  in  a tree", "structure."),
    ),
}


class ShellCall(NamedTuple):
    """A command and its arguments; `help_requested` for -h."""

    name: str
    arguments: list[str]
    help_requested: bool = False


def parse_call(words: Sequence[str], *, interactive: bool) -> ShellCall | None:
    """Parse one command; None for an empty line, ShellError for an invalid one."""
    given = list(words)
    while given and not given[-1]:
        given.pop()
    if not given:
        return None
    names = [name for name, kind in COMMANDS.items() if interactive or not kind.shell_only]
    if given[0] == "--":
        raise ShellError(_unrecognized(given[1:]) if given[1:] else "too few arguments")
    if _is_flag(given[0]):
        raise ShellError(_unrecognized(given[:1]))
    name = _whole_name(given[0], names)
    call = _with_arguments(name, given[1:])
    if name != given[0] and not call.help_requested:
        raise ShellError(f"invalid choice: '{given[0]}': did you mean '{name}'?")
    return call


def _whole_name(given: str, names: Sequence[str]) -> str:
    found = [name for name in names if name.startswith(given)]
    if given in names or len(found) == 1:
        return given if given in names else found[0]
    if found:
        raise ShellError(f"ambiguous command: {given} could match {', '.join(found)}")
    choices = ", ".join(f"'{name}'" for name in names)
    raise ShellError(f"invalid choice: '{given}' (choose from {choices})")


def _with_arguments(name: str, words: Sequence[str]) -> ShellCall:
    kind = COMMANDS[name].arguments
    values: list[str] = []
    rest: Iterator[str] = iter(words)
    for word in rest:
        if word == "--":
            values += rest
        elif word in _HELP_FLAGS:
            return ShellCall(name, values, help_requested=True)
        elif _is_flag(word):
            raise ShellError(_unrecognized([word]))
        else:
            values.append(word)
    limit = 0 if kind is None else 1 if kind.number in "?1" else len(values)
    if len(values) > limit:
        raise ShellError(_unrecognized(values[limit:]))
    if kind is not None and kind.number in "+1" and not values:
        raise ShellError("too few arguments")
    if name == "history" and values:
        text = values[0]
        try:
            java_integer(text, 32)
        except ValueError as error:
            raise ShellError(
                f"argument numEntriesToShow: could not convert '{text}' to Integer ({error})"
            ) from error
    return ShellCall(name, values)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-" and _NUMBER.fullmatch(word) is None


def _unrecognized(words: Iterable[str]) -> str:
    return f"unrecognized arguments: '{' '.join(words)}'"


# ---------------------------------------------------------------- help


def help_lines() -> Iterator[str]:
    """Yield the text of `help`."""
    names = "{" + ",".join(COMMANDS) + "}"
    yield from ("Welcome to the Apache Kafka metadata shell.", "")
    yield from (f"usage:  {names} ...", "", "positional arguments:", f"  {names}")
    for name, kind in COMMANDS.items():
        first, *rest = kind.help_rows or (kind.description,)
        yield f"    {name}".ljust(_COLUMN) + first
        yield from (" " * _COLUMN + line for line in rest)


def man_lines(name: str) -> Iterator[str]:
    """Yield the text of `man` for a command, or the error."""
    kind = COMMANDS.get(name)
    if kind is None:
        yield f"man: unknown command {name}. Type help to get a list of commands."
        return
    yield from (f"{name}: {kind.description}", "")
    yield from _usage(name, kind)


def flag_help_lines(name: str) -> Iterator[str]:
    """Yield the lines that a command prints for -h."""
    yield from _usage(f" {name} [-h]", COMMANDS[name])
    yield from HELP_ROWS


def _usage(name: str, kind: CommandType) -> Iterator[str]:
    if kind.arguments is None:
        yield f"usage: {name}"
        return
    yield from (f"usage: {name} {kind.arguments.usage}", "", "positional arguments:")
    yield f"  {kind.arguments.name}".ljust(_COLUMN) + kind.arguments.help
