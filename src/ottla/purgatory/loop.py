"""One event loop as cores see it; an argument, as the environment of a node is.

Kafka: none; there these are org.apache.kafka.common.utils.Time, the timer and the executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.purgatory.timing_wheel import TimingWheel
    from ottla.purgatory.work import Worker


class Loop(NamedTuple):
    """The time, the timers and the long work of a loop."""

    clock: Clock
    timer: TimingWheel
    worker: Worker
