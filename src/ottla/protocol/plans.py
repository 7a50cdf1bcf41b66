"""Builds the walker's plans from message schemas.

Kafka: its message generator, which runs when Kafka is built;
org.apache.kafka.message.{VersionConditional, FieldSpec}.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.protocol.tagged_fields import without_tags
from ottla.protocol.walker import DEFAULT_KINDS, KINDS, Plan, Step

if TYPE_CHECKING:
    from ottla.protocol.schema import Field, StructMeta


FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "Uuid": "16s",
}
"""Elements of fixed size, with their `struct` codes."""


class AtVersion:
    """The rules of one version of a message and its structs."""

    def __init__(self, cls: StructMeta, version: int) -> None:
        self.version = version
        self.flexible = version in cls.flexible

    def is_flexible(self, field: Field) -> bool:
        """Whether lengths are varints."""
        return self.flexible and (field.flexible is None or self.version in field.flexible)

    def is_nullable(self, field: Field) -> bool:
        """Whether the field may be null."""
        return self.version in field.nullable

    def carries(self, field: Field) -> bool:
        """Whether the version has the field."""
        return self.version in field.versions

    def is_tagged(self, field: Field) -> bool:
        """Whether the field is among the tagged ones."""
        return self.flexible and field.tag is not None and self.version in field.tagged

    def smallest_size(self, field: Field) -> int:
        """Return the minimum size of an element, which bounds an announced array length."""
        if field.struct is not None:
            return max(1, self._smallest_struct(field.struct))
        return _smallest_scalar(field.element, compact=self.is_flexible(field))

    def _smallest_struct(self, cls: StructMeta) -> int:
        carried = (f for f in cls.fields if self.carries(f) and not self.is_tagged(f))
        return (1 if self.flexible else 0) + sum(self._smallest_field(field) for field in carried)

    def _smallest_field(self, field: Field) -> int:
        compact = self.is_flexible(field)
        if field.is_array:
            return 1 if compact else 4
        if field.struct is not None:
            return 1 if self.is_nullable(field) else self._smallest_struct(field.struct)
        return _smallest_scalar(field.element, compact=compact)


def _smallest_scalar(kind: str, *, compact: bool) -> int:
    if kind in FIXED:
        return struct.calcsize(">" + FIXED[kind])
    if compact:
        return 1
    return 2 if kind == "str" else 4


def plan_of(cls: StructMeta, version: int) -> Plan:
    """Return the plan of a top-level message at one of its versions."""
    return _plan(cls, AtVersion(cls, version))


def _plan(cls: StructMeta, rules: AtVersion) -> Plan:
    plan = Plan()
    plan.cls, plan.version, plan.flexible = without_tags(cls), rules.version, rules.flexible
    steps = {field.name: _step(field, rules) for field in cls.fields}
    plan.every = list(steps.values())
    carried = [field for field in cls.fields if rules.carries(field)]
    tagged = [field for field in carried if rules.is_tagged(field)]
    plan.steps = [steps[field.name] for field in carried if field not in tagged]
    plan.tagged = [steps[field.name] for field in sorted(tagged, key=lambda f: f.tag or 0)]
    lost = [field for field in cls.fields if field not in carried]
    plan.absent = [steps[field.name] for field in cls.fields if field in lost or field in tagged]
    plan.guarded = [steps[field.name] for field in lost if not field.ignorable]
    return plan


def _step(field: Field, rules: AtVersion) -> Step:
    step = Step()
    step.name, step.is_array = field.name, field.is_array
    step.nullable, step.compact = rules.is_nullable(field), rules.is_flexible(field)
    step.tag = (field.tag or 0) if rules.is_tagged(field) else -1
    step.plan = None if field.struct is None else _plan(field.struct, rules)
    step.smallest = rules.smallest_size(field)
    _set_kind(step, field)
    _set_default(step, field)
    return step


def _set_kind(step: Step, field: Field) -> None:
    step.kind = KINDS["struct" if field.struct is not None else field.element]
    step.width = step.low = step.high = 0
    if "int" in field.element and field.struct is None:
        step.width = struct.calcsize(">" + FIXED[field.element])
        span = 1 << 8 * step.width
        unsigned = field.element.startswith("u")
        step.low, step.high = (0, span - 1) if unsigned else (-span // 2, span // 2 - 1)


def _set_default(step: Step, field: Field) -> None:
    step.default, step.default_kind = field.default, DEFAULT_KINDS["constant"]
    if field.default is None:
        return
    if field.is_array:
        step.default_kind = DEFAULT_KINDS["empty list"]
    elif field.struct is not None:
        step.default, step.default_kind = field.make_default, DEFAULT_KINDS["made"]
