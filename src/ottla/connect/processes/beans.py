"""The metrics of tasks in the messages of a connector's process.

Nothing that a process sends as metrics may fail it or the page that shows them: what is no bean,
or too much, is dropped.

Kafka: none.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.metrics import valid_bean
from ottla.connect.runtime.metrics import ReportedMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.connect.metrics import MBean

_BEANS_MAX: Final = 1000
"""Beans of a task: a mirror has one for each partition, and a message is read in one turn."""
_TASKS_MAX: Final = 1000
"""Tasks of a process whose metrics are shown."""


def encode_beans(beans: Iterable[MBean]) -> list[list[Any]]:
    """Return beans as JSON can say them, no more than a worker takes."""
    return [list(it) for it in islice(beans, _BEANS_MAX)]


def decode_metrics(tasks: object) -> dict[int, ReportedMetrics]:
    """Return the metrics by task, without what is none."""
    metrics: dict[int, ReportedMetrics] = {}
    for entry in tasks[:_TASKS_MAX] if isinstance(tasks, list) else ():
        match entry:
            case [int(number), list(beans)]:
                valid = [valid_bean(it) for it in beans[:_BEANS_MAX]]
                metrics[number] = ReportedMetrics([it for it in valid if it is not None])
    return metrics
