"""The metrics of tasks in the messages of a connector's process.

Nothing that a process sends as metrics may fail it or the page that shows them: what is no bean,
or too much, is dropped.

Kafka: none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.metrics import MBean
from ottla.connect.runtime.metrics import ReportedMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,127}", re.ASCII)
"""Prometheus refuses a page with a label `0a` or `__name__`."""
_TEXT_MAX: Final = 1024
"""Characters of a tag's or an attribute's text; names of topics and groups have at most 249."""
_BEANS_MAX: Final = 1000
"""Beans of a task: a mirror has one for each partition, and a message is read in one turn."""
_FIELDS_MAX: Final = 100
"""Tags or attributes of a bean; the largest of Kafka's has 22 attributes."""
_TASKS_MAX: Final = 1000
"""Tasks of a process whose metrics are shown."""


def encode_beans(beans: Iterable[MBean]) -> list[list[Any]]:
    """Return beans as JSON can say them, without those that a worker would drop."""
    valid = (_bean(it) for it in beans)
    return [list(it) for it, _ in zip(filter(None, valid), range(_BEANS_MAX), strict=False)]


def decode_metrics(tasks: object) -> dict[int, ReportedMetrics]:
    """Return the metrics by task, without what is none."""
    metrics: dict[int, ReportedMetrics] = {}
    for entry in tasks[:_TASKS_MAX] if isinstance(tasks, list) else ():
        match entry:
            case [int(number), list(beans)]:
                valid = [_bean(it) for it in beans[:_BEANS_MAX]]
                metrics[number] = ReportedMetrics([it for it in valid if it is not None])
    return metrics


def _bean(fields: object) -> MBean | None:
    """Return a bean of plain names, texts and numbers; None for anything else."""
    match fields:
        case [str(domain), str(type_), dict(tags), dict(attributes)]:
            named = (domain, type_, *tags, *attributes)
            if (
                max(len(tags), len(attributes)) <= _FIELDS_MAX
                and all(isinstance(it, str) and _NAME.fullmatch(it) for it in named)
                and all(_is_text(it) for it in tags.values())
                and all(_is_text(it) or _is_number(it) for it in attributes.values())
            ):
                return MBean(domain, type_, tags, attributes)
    return None


def _is_text(value: object) -> bool:
    """Whether a value can be shown: JSON may have half of a character, which UTF-8 cannot say."""
    return (
        isinstance(value, str)
        and len(value) <= _TEXT_MAX
        and not any("\ud800" <= it <= "\udfff" for it in value)
    )


def _is_number(value: object) -> bool:
    """Whether a value is of a float's range."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)
