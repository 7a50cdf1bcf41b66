"""Plays a session on both sides, step by step, up to the first difference.

Kafka: none. Each request is sent to both before the next one. One that may have to wait (a join, a
fetch with a wait) stays pending when neither side answers it at once; it is compared when it is
answered, which both sides have to do after the same step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey
from tests.conformance.differential.side import SILENT
from tests.conformance.sessions.choices import CLIENTS, GROUPS
from tests.conformance.sessions.compare import SessionNormaliser, difference, plain
from tests.conformance.sessions.links import Link, wait_for
from tests.conformance.sessions.memory import Memory
from tests.conformance.sessions.settle import Settling, read_back
from tests.conformance.sessions.steps import Step
from tests.conformance.sessions.transaction_steps import SLOTS

if TYPE_CHECKING:
    from tests.conformance.differential.run import Difference
    from tests.conformance.differential.side import Side

ANSWER_S = 60.0
WAITS_S = 0.03
_CHANGES = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS,
}
_GROUP_CHANGES = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP}
"""Members are answered before the group's record is committed, and others see it after that."""

_TRANSACTION_CHANGES = {ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID}
"""They are answered before the markers are written."""


@dataclass
class Found:
    """A difference and the step that showed it."""

    step: Step
    difference: Difference

    def __str__(self) -> str:
        return f"{self.step}\n    {self.difference}"


def _may_change(step: Step, response: Any) -> bool:
    """Whether an answer says that metadata have changed, so that the brokers must learn of it."""
    if step.key not in _CHANGES or step.fields.get("validate_only"):
        return False
    if isinstance(response, str):
        return True
    values = [getattr(response, field.name) for field in type(response).fields]
    items = [item for value in values if isinstance(value, list) for item in value]
    return any(item.error_code == 0 for item in items)


class Player:
    """One run of a session's steps against fresh names."""

    def __init__(self, sides: tuple[Side, Side], prefix: str) -> None:
        self._sides = sides
        self._prefix = prefix
        self._memories = (Memory(prefix), Memory(prefix))
        kafka, ottla = (
            SessionNormaliser(side, memory)
            for side, memory in zip(sides, self._memories, strict=True)
        )
        self._normalisers = (kafka, ottla)
        self._links: dict[tuple[int, str], tuple[Link, ...]] = {}
        """By client and node."""
        self._is_changed = False
        self._pending: dict[int, tuple[Step, tuple[dict[str, Any], ...]]] = {}
        self._settling = tuple(
            Settling(side, memory) for side, memory in zip(sides, self._memories, strict=True)
        )

    def play(self, steps: list[Step]) -> Found | None:
        """Send all steps; return the first difference. Both sides are cleaned up afterwards."""
        try:
            return self._play(steps)
        finally:
            for links in self._links.values():
                for link in links:
                    link.close()
            for settling in self._settling:
                settling.clean_up(GROUPS)

    def _play(self, steps: list[Step]) -> Found | None:
        for settling in self._settling:
            settling.wait_until_ready()
        for step in steps:
            self._is_changed = False
            found = self._send(step)
            if step.key in _GROUP_CHANGES:
                for settling in self._settling:
                    settling.settle_groups()
            if step.key in _TRANSACTION_CHANGES and step.client in SLOTS:
                for settling in self._settling:
                    settling.settle_transactions()
            if found is None and self._is_changed:
                for settling in self._settling:
                    settling.settle()
            found = found or self._collect(0.0)
            if found is not None:
                return found
        return self._collect(4.0) or self._read_back(len(steps))

    def _send(self, step: Step) -> Found | None:
        client = self._free_client(step.client)
        links = self._links_to(step.node, client)
        fields = tuple(
            side.placed(step.key, memory.resolve(step))
            for side, memory in zip(self._sides, self._memories, strict=True)
        )
        for link, own in zip(links, fields, strict=True):
            link.send(step, own)
            if step.is_silent:
                link.send_probe(step)
        self._pending[client] = (step, fields)
        if step.may_wait:
            if wait_for(links, WAITS_S, for_all=False):
                return self._answered(client)
            return None
        return self._answered(client)

    def _links_to(self, node: str, client: int) -> tuple[Link, ...]:
        """Return a client's connections to a node of each side."""
        links = self._links.get((client, node))
        if links is None:
            name = f"{self._prefix}-c{client}"
            links = tuple(Link(side.ports[node], name) for side in self._sides)
            self._links[client, node] = links
        return links

    def _free_client(self, client: int) -> int:
        """Return the step's client, or another one when that waits for an answer."""
        candidate: int
        for candidate in (client, *range(CLIENTS)):
            if candidate not in self._pending:
                return candidate
        oldest: int = next(iter(self._pending))
        step, _ = self._pending.pop(oldest)
        for link in self._links_to(step.node, oldest):
            link.close()
        return oldest

    def _collect(self, timeout_s: float) -> Found | None:
        """Compare the pending answers that have come."""
        for client in list(self._pending):
            step = self._pending[client][0]
            wait_s = timeout_s if step.key == ApiKey.FETCH else 0.0
            if wait_for(self._links_to(step.node, client), wait_s, for_all=False):
                found = self._answered(client)
                if found is not None:
                    return found
        return None

    def _answered(self, client: int) -> Found | None:
        step, fields = self._pending.pop(client)
        links = self._links_to(step.node, client)
        wait_for(links, ANSWER_S, for_all=True)
        responses = []
        for link in links:
            if wait_for((link,), 0.0, for_all=True):
                response = link.receive()
                is_probe = step.is_silent and not isinstance(response, str)
                responses.append(SILENT if is_probe else response)
            else:
                link.close()
                responses.append(SILENT)
        answers = []
        for index, response in enumerate(responses):
            self._memories[index].learn(step, fields[index], response)
            if step.key == ApiKey.PRODUCE:
                self._settling[index].settle_records(fields[index])
            self._is_changed |= _may_change(step, response)
            answers.append(plain(self._normalisers[index], step, response, self._prefix))
        found = difference(step, answers[0], answers[1])
        return None if found is None else Found(step, found)

    def _read_back(self, number: int) -> Found | None:
        """Compare all records, and all groups with their offsets."""
        step = Step(number, 0, ApiKey.FETCH, 11, {})
        contents = [
            read_back(side, self._prefix, normaliser, GROUPS)
            for side, normaliser in zip(self._sides, self._normalisers, strict=True)
        ]
        found = difference(step, contents[0], contents[1])
        return None if found is None else Found(step, found)
