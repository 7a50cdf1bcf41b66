"""Runs the commands of the metadata shell on a tree of nodes.

Kafka: org.apache.kafka.shell.command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.shell.arguments import flag_help_lines, help_lines, man_lines
from ottla.cli.shell.columns import listing
from ottla.cli.shell.globs import find_nodes
from ottla.cli.shell.nodes import ShellDirectory, ShellError, tree_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.cli.shell.arguments import ShellCall
    from ottla.cli.shell.globs import Found
    from ottla.cli.shell.nodes import Node


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
        return find_nodes(self.root, path, self.working_directory)


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
