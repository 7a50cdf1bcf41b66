"""A stream that is being split into branches.

Kafka: org.apache.kafka.streams.kstream.BranchedKStream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.columns.expression import is_column
from ottla.streams.dsl.settings import Branched
from ottla.streams.errors import TopologyException
from ottla.streams.processors.stateless import Branch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.columns.expression import Columns
    from ottla.streams.dsl.graph import Part
    from ottla.streams.processors.processor import Processor

    Conditions = tuple[tuple[Any, bool], ...]


class BranchedKStream:
    """Branches are tried in their order; a record goes to the first that accepts it."""

    def __init__(
        self,
        stream: Part,
        processor_of: Callable[[Conditions], Processor],
        at: Callable[[str, Processor], Any],
        name: str | None,
    ) -> None:
        """Take the stream, how a branch's processor is made, and the stream at a branch."""
        self._graph, self._processor_of, self._at = stream.graph, processor_of, at
        self._name = self._graph.name("KSTREAM-BRANCH-", name)
        self._branch = Branch()
        self._graph.add(self._name, self._branch, stream.node)
        self._found: dict[str, Any] = {}
        self._tried: list[Any] = []

    def branch(
        self, predicate: Callable[[Any, Any], Any] | Columns, branched: Branched | None = None
    ) -> BranchedKStream:
        """Add a branch for the records that a function of key and value accepts, or a column."""
        if is_column(predicate) is not self._has_columns(is_column(predicate)):
            raise TopologyException("a split has either functions or columns")
        conditions: Conditions = ()
        if is_column(predicate):
            self._branch.is_for_all = True
            conditions = (*self._not_before(), (predicate, False))
            self._tried.append(predicate)
        child = self._child(len(self._branch.branches) + 1, branched, conditions)
        self._branch.add(predicate, child)
        return self

    def default_branch(self, branched: Branched | None = None) -> dict[str, Any]:
        """Add a branch for all other records; return the branches by name."""
        self._branch.default = self._child(0, branched, self._not_before())
        return self._found

    def no_default_branch(self) -> dict[str, Any]:
        """Drop all other records; return the branches by name."""
        return self._found

    def _has_columns(self, given: bool) -> bool:  # noqa: FBT001 - the answer without branches
        return self._branch.is_for_all if self._branch.branches else given

    def _not_before(self) -> Conditions:
        return tuple((one, True) for one in self._tried)

    def _child(self, number: int, branched: Branched | None, conditions: Conditions) -> str:
        given = branched or Branched()
        child = self._name + (str(number) if given.name is None else given.name)
        self._graph.name("")  # Kafka counts the branch, though its name has no number
        processor = self._processor_of(conditions)
        self._graph.add(child, processor, self._name)
        stream = self._at(child, processor)
        if given.function is not None:
            stream = given.function(stream)
        if stream is not None:
            self._found[child] = stream
        return child
