"""The control of a running task: what its thread, the worker and the herder share.

Kafka: org.apache.kafka.connect.runtime.WorkerTask.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from ottla.connect.runtime.metrics import WINDOW, TaskMetrics
from ottla.connect.runtime.state import RunState, TargetState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.connect.runtime.state import ConnectorTaskId
    from ottla.metrics.sampled_stat import SampleWindow

log = logging.getLogger("ottla.connect")


class TaskControl:
    """Stops, pauses and resumes a task; `wake` ends what its thread waits for."""

    def __init__(
        self,
        id_: ConnectorTaskId,
        target: TargetState,
        report: Callable[[RunState, str | None], None],
        window: SampleWindow = WINDOW,
    ) -> None:
        """Take the target state of its start, and who hears of states and traces."""
        self.metrics = TaskMetrics(window)
        self.id = id_
        self.target = target
        self.wake: Callable[[], None] = lambda: None
        self.close_producer: Callable[[], None] = lambda: None
        """Ends a wait of the task's producer, as for a topic that does not exist."""
        self._report = report
        self._changed = threading.Condition()
        self._is_stopping = self._is_abandoned = False
        self._reported: RunState | None = None

    def now_s(self) -> float:
        """Return the monotonic time."""
        return time.monotonic()

    @property
    def is_stopping(self) -> bool:
        """Whether the task is to end."""
        return self._is_stopping

    @property
    def is_abandoned(self) -> bool:
        """Whether the task did not end in time: another one may have its work."""
        return self._is_abandoned

    def abandon(self) -> None:
        """Have the task write nothing more, should it come back; its producer is closed."""
        self._is_abandoned = True
        # on a thread of its own, as in Kafka: the herder waits for no task
        threading.Thread(
            target=self.run_quietly,
            args=(self.close_producer, "closing the producer"),
            name=f"abandon-{self.id}",
            daemon=True,
        ).start()

    @property
    def is_paused(self) -> bool:
        """Whether the task is to move no records."""
        return self.target is not TargetState.STARTED

    def stop(self) -> None:
        """Have the task end."""
        with self._changed:
            if self._is_stopping:
                return  # another wakeup would end what it does to end
            self._is_stopping = True
            self._changed.notify_all()
        self._wake()

    def _wake(self) -> None:
        self.run_quietly(self.wake, "waking the task up")  # the herder goes on

    def set_target(self, target: TargetState) -> None:
        """Pause or resume the task."""
        with self._changed:
            self.target = target
            self._changed.notify_all()
        self._wake()

    def run_quietly(self, step: Callable[[], None], name: str) -> None:
        """Run a step whose failure is logged only."""
        try:
            step()
        except Exception:
            log.exception("%s: %s failed", self.id, name)

    def run(self, work: Callable[[], None], end: Callable[[], None]) -> None:
        """Run the work of the task, then its end; of two failures the first is raised."""
        try:
            work()
        except BaseException:
            self.run_quietly(end, "the end of a failed task")
            raise
        end()

    def wait(self, seconds: float) -> bool:
        """Wait; True as soon as the task is to end."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_stopping, seconds)

    def wait_while_paused(self) -> bool:
        """Wait until the task is resumed or ends; whether it was paused."""
        if not self.is_paused:
            return False
        self.report(RunState.PAUSED)
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or not self.is_paused)
        if not self._is_stopping:
            self.report(RunState.RUNNING)
        return True

    def report_started(self) -> None:
        """Report the first state."""
        self.report(RunState.PAUSED if self.is_paused else RunState.RUNNING)

    def report_resumed(self) -> bool:
        """Report RUNNING after a pause; whether there was one."""
        was_paused = self._reported is RunState.PAUSED
        self.report(RunState.RUNNING)
        return was_paused

    def report(self, state: RunState, trace: str | None = None) -> None:
        """Report a state, once; after a stop it is that of who stopped the task, as in Kafka."""
        if state is not self._reported and not self._is_stopping:
            self._reported = state
            self.metrics.changed(state)
            self._report(state, trace)
