"""What a session consists of: requests as plain data with references to earlier answers.

Kafka: none. A step never depends on an answer directly, so that steps can be left out: ids that a
node draws are references, which each side resolves from what it has answered so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.protocol.api_keys import ApiKey


LEADER = "broker"
"""The node that leads all partitions and coordinates all groups."""


class Ref(NamedTuple):
    """A value that a side knows: `kind` is a method of `Memory`, `arguments` are its arguments."""

    kind: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Records:
    """A record batch; the producer's id, epoch and sequence are resolved by each side."""

    topic: str
    partition: int
    number: int
    count: int
    codec: int = 0
    producer: int | None = None
    sequence_step: int = 0
    epoch_step: int = 0
    flaw: str = ""
    time_step_ms: int = 0
    is_transactional: bool = False


@dataclass(frozen=True)
class Step:
    """One request on one client's connection.

    `node` is the part of the node that is asked, as `ClusterSide` names it.
    `may_wait` says that the answer may need later requests; `is_silent` that there is none.
    """

    number: int
    client: int
    key: ApiKey
    version: int
    fields: dict[str, Any] = field(hash=False)
    may_wait: bool = False
    is_silent: bool = False
    node: str = LEADER

    @property
    def label(self) -> str:
        """The API's name, as allowed differences use it."""
        return self.key.name.lower()

    def __str__(self) -> str:
        where = "" if self.node == LEADER else f" of {self.node}"
        asked = f"client {self.client}{where}"
        return f"{self.number}: {asked} {self.label} v{self.version} {self.fields}"
