"""The prompt of the metadata shell: words, completion and history.

Kafka: org.apache.kafka.shell.InteractiveShell, which uses JLine; here GNU readline edits lines.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.shell.arguments import COMMANDS, parse_call
from ottla.cli.shell.commands import LeaveShell, run
from ottla.cli.shell.nodes import ShellDirectory, ShellError, path_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.cli.shell.commands import ShellState
    from ottla.cli.shell.nodes import Node

PROMPT: Final = ">> "
_PATH_COMMANDS: Final = ("cat", "find", "ls", "tree")


def converse(state: ShellState) -> None:
    """Read and run commands until `exit` or the end of the input.

    Raises ShellError for an error that ends the shell.
    """
    click.echo("[ Kafka Metadata Shell ]")
    _edit_lines(state)
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo("^C")
            continue
        if line.strip() and line.strip() != (state.history or [""])[-1]:
            state.history.append(line.strip())
        if sys.stdout.isatty():
            state.width = shutil.get_terminal_size().columns
        try:
            _run_line(line, state)
        except LeaveShell:
            return
        except KeyboardInterrupt:  # in a long listing
            click.echo("^C")


def _run_line(line: str, state: ShellState) -> None:
    try:
        call = parse_call(split_words(line), interactive=True)
    except ShellError as error:
        click.echo(str(error))
        return
    for shown in () if call is None else run(call, state):
        click.echo(shown)


def split_words(line: str) -> list[str]:
    """Split a line at blanks; quotes around a word and backslashes keep blanks in it."""
    words: list[str] = []
    word, quote, is_word_quoted, is_escaped = "", "", False, False
    for character in line:
        if not is_escaped and character == "\\":
            is_escaped = True
            continue
        if not is_escaped and not quote and character in "\"'":
            quote, is_word_quoted = character, not word
            word += "" if is_word_quoted else character
        elif not is_escaped and quote == character:
            word += "" if is_word_quoted else character
            quote = ""
        elif not is_escaped and not quote and character.isspace():
            words += [word] if word else []
            word = ""
        else:
            word += character
        is_escaped = False
    return [*words, word] if word else words


# ---------------------------------------------------------------- completion


def _edit_lines(state: ShellState) -> None:
    """Complete words with the tab key where the platform has readline."""
    try:
        import readline
    except ImportError:  # a Python without it: lines are read without editing
        return
    found: list[str] = []

    def complete(_text: str, number: int) -> str | None:
        if number == 0:
            found[:] = completions(readline.get_line_buffer()[: readline.get_endidx()], state)
        return found[number] if number < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def completions(line: str, state: ShellState) -> list[str]:
    """Return the completions of the last word of a line; directories end in a slash."""
    words = line.split(" ")
    command, last = words[0], words[-1]
    if len(words) == 1 or (command == "man" and len(words) == 2):
        return [f"{name} " for name in COMMANDS if name.startswith(last)]
    if command in _PATH_COMMANDS or (command == "cd" and len(words) == 2):
        return list(_completed_paths(last, state))
    return []


def _completed_paths(prefix: str, state: ShellState) -> Iterator[str]:
    parent, slash, start = prefix.rpartition("/")
    node: Node | None = state.root
    for part in path_parts(parent + slash, state.working_directory):
        node = node.child(part) if isinstance(node, ShellDirectory) else None
    if not isinstance(node, ShellDirectory):
        return
    for name in node.names:
        if name.startswith(start):
            is_directory = isinstance(node.child(name), ShellDirectory)
            yield f"{parent}{slash}{name}{'/' if is_directory else ' '}"
