r"""Finds the nodes that a path with `*`, `?`, `{a,b}` and `\` names.

Kafka: org.apache.kafka.shell.glob.{GlobComponent, GlobVisitor}.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.shell.nodes import ShellDirectory, ShellError, path_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.cli.shell.nodes import Node

_GROUP = {"{": "(?:(?:", ",": ")|(?:", "}": "))"}


class Found(NamedTuple):
    """A node and its path from the root."""

    path: tuple[str, ...]
    node: Node

    @property
    def last_part(self) -> str:
        """The node's name."""
        return self.path[-1] if self.path else "/"


def find_nodes(root: Node, pattern: str, working_directory: str) -> list[Found]:
    """Return the nodes that match a path, in order."""
    return list(_matches(root, path_parts(pattern, working_directory), ()))


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
