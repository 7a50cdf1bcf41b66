"""Runs an application and starts it again after a failed micro-batch, with growing pauses.

Kafka: org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler (REPLACE_THREAD).
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from ottla.clients.cluster_reader import OLD_OFFSETS
from ottla.diagnosis.advice import OTHER_LOG, advice_in
from ottla.purgatory.backoff import Backoff
from ottla.spark.exactly_once import OTHER_DRIVER, OTHER_OFFSETS, OTHER_STATE
from ottla.streams.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("ottla.streams")

BACKOFF: Final = Backoff(1000, 60_000)
"""Between restarts: a broker that restarts is back by the second one, a broken one costs little."""
_FINAL = (
    OTHER_DRIVER,
    OTHER_STATE,
    OTHER_OFFSETS,
    "StreamsException",
    "FailedProcessingException",
    "another checkpoint",
    "has no decision on one",
    "is missing from the group's offsets",
    OLD_OFFSETS,
    "was deleted before offset",
    "SQLSTATE: 22",
)
"""What a restart does not change: another driver, code that is no function of its records, a
checkpoint that is older than what was written, a bad record or an error of an expression (Spark's
class 22), a wrong checkpoint, a source topic that was deleted."""

_OWN: Final = re.compile(r"\b(?:ottla(?:\.\w+)+|Could not serialize object: \w+): (.+)")
"""An error of ours in the text of Spark's, as Python writes it, or what pickles a writer."""
_OF_PY4J: Final = "An error occurred while calling"


def advice(error: BaseException) -> str:
    """Return what to do about an error whose own text does not say it; "" for others."""
    return _known_cause(error)[1]


def _known_cause(error: BaseException) -> tuple[str, str]:
    """Return the words by which the cause of an error that is not ours is known, and what to do.

    Spark keeps causes in the stack trace of the JVM.
    """
    return advice_in(f"{error}\n{_trace(error)}")


def _trace(error: BaseException) -> str:
    trace: str | None = getattr(error, "_stackTrace", None)
    return trace or ""


def query_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a query besides our own: Spark's, Java's, of files and connections."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, OSError)


def reason(error: BaseException) -> str:
    """Return an error in one line, with what to do; of a failed task, our error within Spark's."""
    text = str(error)
    # Python writes the cause of an error before it: the last one says what it came from
    own = _OWN.findall(text) or _OWN.findall(_trace(error))
    first = own[-1] if own else _first_line(text)
    cause, hint = _known_cause(error)
    if cause not in first:
        first = f"{cause}: {first}"
    return f"{first}; {hint}" if hint else first


def _first_line(text: str) -> str:
    """Return the first line that says something: py4j's names a call, Java's error follows."""
    first, _, rest = text.partition("\n")
    return rest.partition("\n")[0].lstrip(": ") if rest and first.startswith(_OF_PY4J) else first


def is_final(error: Exception) -> bool:
    """Whether the application would fail again in the same way."""
    return isinstance(error, StreamsException) or any(word in str(error) for word in _FINAL)


def is_lost_race(error: Exception) -> bool:
    """Whether another driver was quicker to plan or commit the next micro-batch."""
    return any(word in str(error) for word in OTHER_LOG)


def supervise(
    run: Callable[[], int | None], sleep: Callable[[float], None], restarts: int | None = None
) -> None:
    """Call `run` until it returns None; after an error wait and call it again.

    `run` returns the last finished micro-batch: a later one ends the growth of pauses.
    Raises the error that is final, or the one after the last restart. A lost race is final, as the
    other driver goes on, but not as the next error after another one: the micro-batch that failed
    may have fenced the other driver, and then none would go on.
    """
    failures, last, may_have_fenced = 0, -1, False
    while True:
        try:
            found = run()
            if found is None:
                return
            if found > last:
                failures, last, may_have_fenced = 0, found, False
        except Exception as error:
            failures += 1
            is_lost = is_lost_race(error)
            if is_final(error) or (is_lost and not may_have_fenced):
                raise
            if restarts is not None and failures > restarts:
                raise
            may_have_fenced = not is_lost
            pause_s = BACKOFF.after(failures) / 1000
            log.warning(
                "micro-batch failed, restart in %.0f s: %s",
                pause_s,
                reason(error),
                extra={"event": "streams.restart"},
            )
            sleep(pause_s)
