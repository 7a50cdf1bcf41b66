"""Builds the walker's plans from message schemas.

Kafka: its message generator, which runs when Kafka is built.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.protocol.at_version import FIXED, AtVersion
from ottla.protocol.tagged_fields import without_tags
from ottla.protocol.walker import DEFAULT_KINDS, KINDS, Plan, Step

if TYPE_CHECKING:
    from ottla.protocol.schema import Field, StructMeta


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
