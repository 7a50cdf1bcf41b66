"""A source of made-up records: record n of task i is a function of the seed, i and n.

Kafka: Confluent's io.confluent.kafka.connect.datagen.{DatagenConnector, DatagenTask}.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.config.checks import NON_EMPTY, Range, at_least, one_of
from ottla.config.definition import (
    HIGH,
    LOW,
    MAX_LONG,
    MEDIUM,
    ConfigDefinitions,
    Type,
)
from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.connect import PLUGIN_VERSION
from ottla.connect.data import SchemaType
from ottla.connect.errors import ConnectException
from ottla.connect.generator.draws import Draws
from ottla.connect.generator.schema import SchemaError, ValueGenerator, compile_record, read_schema
from ottla.connect.generator.words import QUICKSTARTS
from ottla.connect.simple import Record, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.connect.data import Schema

_TURN_S: Final = 0.2
"""A read that paces its records ends after this time, so that a stop is quick."""
_LAG_MAX_S: Final = 1.0
"""Records that are late by more, after back-pressure, are not made up for."""
_TASKS_MAX: Final = 10_000
_KEY_TYPES: Final = frozenset(SchemaType) - {
    SchemaType.ARRAY,
    SchemaType.MAP,
    SchemaType.STRUCT,
}


@dataclass(frozen=True, slots=True)
class _SchemaText:
    """Schemas that `read_schema` takes."""

    def reason(self, _name: str, value: Any) -> str | None:
        """Return the reason that refuses a value."""
        try:
            if value is not None:
                read_schema(value)
        except SchemaError as error:
            return str(error)
        return None


@dataclass(frozen=True, slots=True)
class _Quickstart:
    """Names of quickstarts, or none."""

    def reason(self, name: str, value: Any) -> str | None:
        """Return the reason that refuses a value."""
        return None if value is None else one_of(*QUICKSTARTS).reason(name, value)


@dataclass(frozen=True, slots=True)
class _Combination:
    """Validates settings together: a recommender may refuse what no check of one value sees."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> list[Any]:
        """Return the quickstarts, or the fields for the key."""
        if name == "kafka.topic":
            _topic(parsed)
            return []
        if name == "quickstart":
            _check_exactly_one(parsed)
            return list(QUICKSTARTS)
        try:
            _check_exactly_one(parsed)
            plan, _ = _plan({**parsed, name: None})
        except (ConfigErrors, SchemaError, KeyError):
            return []  # an error of another setting, which has its own text
        _check_key_field(plan, parsed[name])
        return _key_fields(plan)

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        """Show all."""
        del name, parsed
        return True


DEFINITIONS: Final = (
    ConfigDefinitions()
    .define("kafka.topic", Type.STRING, None, "The topic to write to.", NON_EMPTY,
            importance=HIGH, recommender=_Combination())
    .define("topic", Type.STRING, None, "The topic, where kafka.topic is not set.", NON_EMPTY,
            importance=LOW)
    .define("quickstart", Type.STRING, None,
            "Records of a known kind: orders, users, pageviews or clickstream.",
            _Quickstart(), importance=HIGH, recommender=_Combination())
    .define("schema.string", Type.STRING, None,
            "The JSON of a record's schema of Avro, with arg.properties; instead of quickstart.",
            _SchemaText(), importance=HIGH)
    .define("schema.keyfield", Type.STRING, None,
            ("The field whose value is the key, too. Without it a quickstart has its own, and a "
             "schema.string none."), importance=MEDIUM, recommender=_Combination())
    .define("max.interval", Type.LONG, 500,
            ("Greatest time in milliseconds between two records of a task; each waits for a random "
             "part of it. 0 or less: no pauses."), importance=HIGH)
    .define("iterations", Type.LONG, -1,
            "Records of each task, after which it makes no more; -1 has no limit.",
            at_least(-1), importance=HIGH)
    .define("random.seed", Type.LONG, 0,
            "Another seed gives other records; with the same one they are the same in each run.",
            importance=MEDIUM)
    .define("tasks.max", Type.INT, 1,
            "Tasks, each with a sequence of its own.", Range(1, _TASKS_MAX), importance=HIGH)
)  # fmt: skip


class Generator(Source):
    """Makes up records by a schema; each task goes on from the number in its offset."""

    version: ClassVar[str] = PLUGIN_VERSION
    runtime: ClassVar[str] = "thread"
    definitions: ClassVar[ConfigDefinitions] = DEFINITIONS

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Compile the schema; ConfigErrors for settings that contradict each other."""
        super().__init__(settings)
        self._topic = _topic(settings)
        _check_exactly_one(settings)
        self._plan, self._key_field = _plan(settings)
        self._seed: int = settings["random.seed"]
        self._interval_s: float = max(settings["max.interval"], 0) / 1000
        self._end: int = MAX_LONG if settings["iterations"] < 0 else settings["iterations"]
        self._due_s: dict[int, float] = {}
        """The time of each task's next record, if they are paced."""

    def partitions(self) -> Sequence[Mapping[str, Any]]:
        """Return a partition for each task."""
        return [{"task": task} for task in range(self.settings["tasks.max"])]

    def read(
        self, partition: Mapping[str, Any], offset: Mapping[str, Any] | None
    ) -> Iterable[Record]:
        """Make the records after an offset, those that are due if they are paced."""
        task: int = partition["task"]
        number = 0 if offset is None else offset.get("next")
        if type(number) is not int or number < 0:
            raise ConnectException(f"The offset of task {task} has no number of a record in 'next'")
        end_s = time.monotonic() + _TURN_S
        for following in range(number, self._end):
            draws = Draws(f"{self._seed}:{task}:{following}")
            wait_s = draws.fraction() * self._interval_s
            if wait_s and not self._is_due(task, wait_s, end_s):
                return
            value = self._plan.make(draws, following)
            key = None if self._key_field is None else value[self._key_field]
            yield Record(value, offset={"next": following + 1}, key=key, topic=self._topic)

    def schema(self) -> Schema:
        """Return the schema of all values."""
        return self._plan.schema

    def _is_due(self, task: int, wait_s: float, end_s: float) -> bool:
        """Wait for the time of a task's next record, not beyond the end of the read."""
        now_s = time.monotonic()
        due_s = self._due_s.get(task, now_s)
        if due_s > end_s:
            return False
        time.sleep(max(due_s - now_s, 0))
        self._due_s[task] = max(due_s, now_s - _LAG_MAX_S) + wait_s
        return True


def _topic(settings: Mapping[str, Any]) -> str:
    topic: str | None = settings["kafka.topic"] or settings["topic"]
    if topic is None:
        raise _refusal("kafka.topic", None, "kafka.topic is missing: the topic to write to.")
    return topic


def _check_exactly_one(settings: Mapping[str, Any]) -> None:
    if (settings["quickstart"] is None) == (settings["schema.string"] is None):
        raise _refusal(
            "quickstart",
            settings["quickstart"],
            "Exactly one of quickstart and schema.string must be set.",
        )


def _plan(settings: Mapping[str, Any]) -> tuple[ValueGenerator, str | None]:
    """Return the schema and the field of the key."""
    if settings["quickstart"] is None:
        key_field, plan = None, read_schema(settings["schema.string"])
    else:
        key_field, of = QUICKSTARTS[settings["quickstart"]]
        plan = compile_record(of)
    name: str | None = settings["schema.keyfield"]
    _check_key_field(plan, name)
    return plan, name or key_field


def _check_key_field(plan: ValueGenerator, name: str | None) -> None:
    known = _key_fields(plan)
    if name is not None and name not in known:
        raise _refusal(
            "schema.keyfield",
            name,
            f"schema.keyfield must be a field with a plain value ({', '.join(known)}), not {name}.",
        )


def _key_fields(plan: ValueGenerator) -> list[str]:
    return [
        it.name
        for it in plan.schema.fields
        if it.schema.type in _KEY_TYPES and it.schema.name is None
    ]


def _refusal(name: str, value: str | None, text: str) -> ConfigErrors:
    return ConfigErrors([ConfigProblem(name, value, text)])
