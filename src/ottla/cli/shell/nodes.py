"""The tree that the metadata shell shows: directories with children, leaves with a text.

Kafka: org.apache.kafka.image.node.MetadataNode, org.apache.kafka.shell.node.printer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class Leaf(NamedTuple):
    """A node with contents."""

    text: str


class ShellDirectory(NamedTuple):
    """A node with children, which are created on lookup.

    `child` returns None for an unknown name.
    """

    unsorted_names: Callable[[], Sequence[str]]
    child: Callable[[str], Node | None]
    java_name: str = ""
    """Kafka's class, named in an error."""

    @property
    def names(self) -> list[str]:
        """The names of the children in the order of every listing."""
        return sorted(self.unsorted_names())


Node: TypeAlias = Leaf | ShellDirectory


class ShellError(Exception):
    """An error that ends a command, with Kafka's text."""


def directory_of(children: Mapping[str, Callable[[], Node]]) -> ShellDirectory:
    """Return a directory with these children."""

    def child(name: str) -> Node | None:
        make = children.get(name)
        return None if make is None else make()

    return ShellDirectory(lambda: list(children), child)


def tree_lines(node: Node, indentation: str = "") -> Iterator[str]:
    """Yield the lines of a node and of all its descendants."""
    if isinstance(node, Leaf):
        yield indentation + node.text
        return
    for name in node.names:
        yield f"{indentation}{name}:"
        child = node.child(name)
        if child is not None:
            yield from tree_lines(child, indentation + "  ")


def path_parts(path: str, working_directory: str) -> list[str]:
    """Return the components of a path from the root, `.` and `..` resolved."""
    absolute = path if path.startswith("/") else f"{working_directory}/{path}"
    parts: list[str] = []
    for part in absolute.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return parts
