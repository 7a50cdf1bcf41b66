"""Runs the commands of the metadata shell on a tree of nodes.

Kafka: org.apache.kafka.shell.command, org.apache.kafka.shell.glob.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli.shell.arguments import flag_help_lines, help_lines, man_lines
from ottla.cli.shell.image_tree import ShellDirectory, ShellError, path_parts, tree_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.cli.shell.arguments import ShellCall
    from ottla.cli.shell.image_tree import Node

_GROUP = {"{": "(?:(?:", ",": ")|(?:", "}": "))"}
_MIN_COLUMN_CHARACTERS: Final = 4
_GAP_CHARACTERS: Final = 2


class LeaveShell(Exception):
    """The command `exit`."""


class ShellState:
    """The tree, the working directory and the lines entered so far."""

    def __init__(self, root: ShellDirectory, width: int | None = None) -> None:
        self.root = root
        self.width = width
        """Columns of the terminal; None prints one name a line."""
        self.working_directory = "/"
        self.history: list[str] = []

    def find(self, path: str) -> list[Found]:
        """Return the nodes that match a path."""
        return list(_matches(self.root, path_parts(path, self.working_directory), ()))


def run(call: ShellCall, state: ShellState) -> Iterator[str]:
    """Yield the lines that a command prints; raises LeaveShell, ShellError."""
    if call.help_requested:
        return flag_help_lines(call.name)
    return _COMMANDS[call.name](state, call.arguments)


def _cat(state: ShellState, targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        found = state.find(target)
        if not found:
            yield f"cat: {target}: No such file or directory."
        for one in found:
            if isinstance(one.node, ShellDirectory):
                yield f"cat: {target}: Is a directory"
            else:
                yield from tree_lines(one.node)


def _cd(state: ShellState, targets: Sequence[str]) -> Iterator[str]:
    target = targets[0] if targets else "/"
    found = state.find(target)
    if not found:
        yield f"cd: {target}: no such directory."
    for one in found:
        if isinstance(one.node, ShellDirectory):
            state.working_directory = f"/{'/'.join(one.path)}"
        else:
            yield f"cd: {target}: not a directory."


def _exit(_state: ShellState, _arguments: Sequence[str]) -> Iterator[str]:
    raise LeaveShell


def _find(state: ShellState, paths: Sequence[str]) -> Iterator[str]:
    for path in _or_here(paths):
        found = state.find(path)
        if not found:
            yield f"find: {path}: no such file or directory."
        for one in found:
            yield from _paths(path, one.node)


def _paths(path: str, node: Node) -> Iterator[str]:
    yield path
    if not isinstance(node, ShellDirectory):
        return
    for name in node.names:
        child = node.child(name)
        if child is None:
            raise ShellError(f"Expected {name} to be a valid child of {path}, but it was not.")
        yield from _paths(f"/{name}" if path == "/" else f"{path}/{name}", child)


def _help(_state: ShellState, _arguments: Sequence[str]) -> Iterator[str]:
    return help_lines()


def _history(state: ShellState, arguments: Sequence[str]) -> Iterator[str]:
    count = max(int(arguments[0]), 0) if arguments else len(state.history)
    first = max(len(state.history) - count, 0)
    for number, line in enumerate(state.history[first:], start=first):
        yield f"{number: 5d}  {line}"


def _ls(state: ShellState, targets: Sequence[str]) -> Iterator[str]:
    files, directories = [], []
    for target in _or_here(targets):
        found = state.find(target)
        if not found:
            yield f"ls: {target}: no such file or directory."
        for one in found:
            if isinstance(one.node, ShellDirectory):
                directories.append((one.last_part, one.node.names))
            else:
                files.append(one.last_part)
    yield from listing(files, directories, state.width)


def _man(_state: ShellState, arguments: Sequence[str]) -> Iterator[str]:
    return man_lines(arguments[0])


def _pwd(state: ShellState, _arguments: Sequence[str]) -> Iterator[str]:
    yield state.working_directory


def _tree(state: ShellState, targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        found = state.find(target)
        if not found:
            yield f"tree: {target}: No such file or directory."
        for one in found:
            yield from tree_lines(one.node)


def _or_here(paths: Sequence[str]) -> Sequence[str]:
    return [path for path in paths if path] or ["."]


_COMMANDS: Final = {
    "cat": _cat,
    "cd": _cd,
    "exit": _exit,
    "find": _find,
    "help": _help,
    "history": _history,
    "ls": _ls,
    "man": _man,
    "pwd": _pwd,
    "tree": _tree,
}


class Found(NamedTuple):
    """A node and its path from the root."""

    path: tuple[str, ...]
    node: Node

    @property
    def last_part(self) -> str:
        """The node's name."""
        return self.path[-1] if self.path else "/"


def _matches(node: Node, parts: Sequence[str], path: tuple[str, ...]) -> Iterator[Found]:
    if not parts:
        yield Found(path, node)
        return
    if not isinstance(node, ShellDirectory):
        return
    pattern = compiled(parts[0])
    if pattern is None:
        child = node.child(parts[0])
        if child is not None:
            yield from _matches(child, parts[1:], (*path, parts[0]))
        return
    for name in node.names:
        if pattern.fullmatch(name):
            child = node.child(name)
            if child is None:
                raise ShellError(
                    f"Expected {name} to be a valid child of class {node.java_name}, "
                    "but it was not."
                )
            yield from _matches(child, parts[1:], (*path, name))


def compiled(glob: str) -> re.Pattern[str] | None:
    """Return the regular expression of one component; None for a literal name.

    A component with an unclosed or a nested group is literal, too.
    """
    output = []
    literal, in_group = True, False
    characters = iter(glob)
    for character in characters:
        if character == "\\":
            output.append(re.escape(next(characters, "\\")))
        elif character in "?*":
            literal = False
            output.append(".*" if character == "*" else ".")
        elif character == "{" or (in_group and character in ",}"):
            if character == "{" and in_group:
                return None
            literal = False
            in_group = character != "}"
            output.append(_GROUP[character])
        else:
            output.append(re.escape(character))
    return None if literal or in_group else re.compile("".join(output), re.DOTALL)


def listing(
    files: Sequence[str], directories: Sequence[tuple[str, Sequence[str]]], width: int | None
) -> Iterator[str]:
    """Yield the lines of `ls`: the files, then each directory with its children.

    `width` is the terminal's, None for one name a line. A directory is named unless it is alone.
    """
    yield from _rows(files, width)
    is_first = not files
    is_named = bool(files) or len(directories) > 1
    for name, children in directories:
        if is_named and children:
            yield f"{name}:" if is_first else f"\n{name}:"
        is_first = False
        yield from _rows(children, width)


def _rows(names: Sequence[str], width: int | None) -> Iterator[str]:
    if not names:
        return
    widths, rows = _columns(names, width)
    for row in range(rows):
        cells = names[row::rows]
        padded = [cell.ljust(widths[number]) for number, cell in enumerate(cells)]
        if len(cells) == len(widths):
            padded[-1] = cells[-1]
        yield "".join(padded)


def _columns(names: Sequence[str], width: int | None) -> tuple[list[int], int]:
    """Return the widths of the most columns that fit, and the number of rows."""
    most = 1 if width is None else width // _MIN_COLUMN_CHARACTERS
    for count in range(most, 1, -1):
        rows = -(-len(names) // count)
        widths = [
            max(map(len, names[start : start + rows])) + _GAP_CHARACTERS
            for start in range(0, len(names), rows)
        ]
        if len(widths) == count and sum(widths) <= (width or 0):
            return widths, rows
    return [max(map(len, names)) + _GAP_CHARACTERS], len(names)
