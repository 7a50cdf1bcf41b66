"""Answers of a session as plain data: ids that a node draws are named in order of appearance.

Kafka: none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ottla.types import Uuid
from tests.conformance.differential import allowed_elsewhere
from tests.conformance.differential.allowed import is_allowed as is_allowed_in_cases
from tests.conformance.differential.allowed import sort_lists
from tests.conformance.differential.normalise import Normaliser, flat
from tests.conformance.differential.run import Difference
from tests.conformance.sessions.allowed import STANDBY, UNORDERED, is_allowed
from tests.conformance.sessions.batches import decode

if TYPE_CHECKING:
    from tests.conformance.differential.side import Side
    from tests.conformance.sessions.memory import Memory
    from tests.conformance.sessions.steps import Step

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NUMBERED = frozenset({"session_id", "producer_id"})
# Lists of all that a node has: other sessions' entries are left out. API → list and name.
_SHARED = {
    "list_groups": ("groups", "group_id"),
    "metadata": ("topics", "name"),
    "describe_topic_partitions": ("topics", "name"),
    "list_config_resources": ("config_resources", "resource_name"),
}


class SessionNormaliser(Normaliser):
    """Numbers the ids that a side draws, so that equal sessions have equal numbers."""

    def __init__(self, side: Side, memory: Memory) -> None:
        super().__init__(side.ports, side.log_dir)
        self.texts = side.normalise.texts
        self._memory = memory
        self._names: dict[tuple[str, object], str] = {}

    def named(self, kind: str, value: object) -> str:
        """Return the name of an id, a new one at its first appearance."""
        count = sum(known == kind for known, _ in self._names)
        return self._names.setdefault((kind, value), f"<{kind} {count}>")

    def _field(self, name: str, value: Any, version: int) -> Any:
        if name in _NUMBERED and (value > 0 or (value == 0 and name == "producer_id")):
            return self.named(name, value)
        if name == "records" and value is not None:
            return decode(value, lambda producer: self._field("producer_id", producer, version))
        return super()._field(name, value, version)

    def _value(self, value: Any, version: int) -> Any:
        if isinstance(value, Uuid) and any(value):
            topics = {topic_id: name for name, topic_id in self._memory.topic_ids.items()}
            return f"<id of {topics[value]}>" if value in topics else "<uuid>"
        return super()._value(value, version)

    def text(self, text: str) -> str:
        """Return a text with numbers for the ids in it."""
        numbered = _UUID.sub(lambda found: self.named("uuid", found.group()), text)
        return super().text(numbered)


def plain(normaliser: SessionNormaliser, step: Step, response: Any, prefix: str) -> Any:
    """Return an answer as plain data in a comparable order."""
    listed = _SHARED.get(step.label)
    if listed is not None and not isinstance(response, str):
        name, of = listed
        entries = getattr(response, name)
        own = [one for one in entries if (getattr(one, of) or prefix).startswith(prefix)]
        setattr(response, name, sorted(own, key=lambda one: getattr(one, of) or ""))
    answer = {"answer": normaliser(response, step.version)}
    if step.label == "fetch" and not isinstance(response, str):
        answer["answer"]["responses"] = _merged(answer["answer"]["responses"])
    sort_lists(answer, {name for label, name in UNORDERED if re.fullmatch(label, step.label)})
    return answer


def _merged(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry a topic: Kafka splits a topic where another one comes in between."""
    merged: dict[str, dict[str, Any]] = {}
    for topic in topics:
        name = topic.get("topic", "") or topic.get("topic_id", "")
        known = merged.setdefault(name, topic | {"partitions": []})
        known["partitions"] += topic["partitions"]
    return [merged[name] for name in sorted(merged)]


def _is_allowed(step: Step, one: Difference) -> bool:
    if is_allowed(one._replace(label=step.label)):
        return True
    return step.node == "standby" and (
        is_allowed(one) or is_allowed_in_cases(one) or allowed_elsewhere.is_allowed("follower", one)
    )


def difference(step: Step, kafka: Any, ottla: Any) -> Difference | None:
    """Return the first value in which two answers differ and may not."""
    theirs, ours = flat(kafka), flat(ottla)
    label = step.label + (STANDBY if step.node == "standby" else "")
    for path in [*theirs, *(path for path in ours if path not in theirs)]:
        one = Difference(
            label,
            step.version,
            path,
            theirs.get(path, "<absent>"),
            ours.get(path, "<absent>"),
        )
        if one.kafka != one.ottla and not _is_allowed(step, one):
            return one
    return None
