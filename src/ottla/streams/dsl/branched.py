"""A stream that is being split into branches.

Kafka: org.apache.kafka.streams.kstream.BranchedKStream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.processors.stateless import Branch, PassThrough
from ottla.streams.settings import Branched

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.dsl.graph import Part


class BranchedKStream:
    """Branches are tried in their order; a record goes to the first that accepts it."""

    def __init__(self, stream: Part, at: Callable[[str], Any], name: str | None) -> None:
        self._graph, self._at = stream.graph, at
        self._name = self._graph.name("KSTREAM-BRANCH-", name)
        self._branch = Branch()
        self._graph.add(self._name, self._branch, stream.node)
        self._found: dict[str, Any] = {}

    def branch(
        self, predicate: Callable[[Any, Any], Any], branched: Branched | None = None
    ) -> BranchedKStream:
        """Add a branch for the records that a function of key and value accepts."""
        child = self._child(len(self._branch.branches) + 1, branched)
        self._branch.branches.append((predicate, child))
        return self

    def default_branch(self, branched: Branched | None = None) -> dict[str, Any]:
        """Add a branch for all other records; return the branches by name."""
        self._branch.default = self._child(0, branched)
        return self._found

    def no_default_branch(self) -> dict[str, Any]:
        """Drop all other records; return the branches by name."""
        return self._found

    def _child(self, number: int, branched: Branched | None) -> str:
        given = branched or Branched()
        child = self._name + (str(number) if given.name is None else given.name)
        self._graph.name("")  # Kafka counts the branch, though its name has no number
        self._graph.add(child, PassThrough(), self._name)
        stream = self._at(child)
        if given.function is not None:
            stream = given.function(stream)
        if stream is not None:
            self._found[child] = stream
        return child
