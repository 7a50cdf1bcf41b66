"""The metrics of a running application, as Prometheus reads them from /metrics.

Kafka: metrics of stream-thread-metrics, stream-task-metrics and stream-state-metrics.
"""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any, Final

from ottla.http.host import HttpHost, Page
from ottla.metrics.families import TEXT_TYPE, Exposition, Family, Kind, Series, label_text, own

if TYPE_CHECKING:
    from typing import Self

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.streams.run.progress import Progress

_GAUGES: Final = {
    "batch": own("ottla_streams_batch_id", "Number of the last micro-batch."),
    "rows_per_second": own("ottla_streams_rows_per_second", "Rate of the last micro-batch."),
    "lag": own("ottla_streams_lag", "Records that the last micro-batch left in the topics."),
    "stream_time_ms": own(
        "ottla_streams_stream_time_ms", "Highest timestamp of the records so far."
    ),
    "state_rows": own("ottla_streams_state_rows", "Entries of Spark's state."),
    "state_bytes": own("ottla_streams_state_bytes", "Memory that Spark's state takes."),
    "batch_ms": own("ottla_streams_batch_ms", "Time of the last micro-batch."),
}
_ROWS: Final = own("ottla_streams_rows", "Records that this process has read.", Kind.COUNTER)
_RESTARTS: Final = own("ottla_streams_restarts", "Restarts after an error.", Kind.COUNTER)


class StreamsMetrics:
    """The current figures of an application."""

    def __init__(self, application_id: str) -> None:
        self._labels = (label_text(application_id=application_id),)
        self._values: dict[Family, float] = {_ROWS: 0, _RESTARTS: 0}
        self._run_and_batch: Any = None
        self._lock = threading.Lock()

    def take(self, progress: Progress) -> None:
        """Take the figures of a micro-batch; its rows count once."""
        with self._lock:
            for name, family in _GAUGES.items():
                self._values[family] = getattr(progress, name)
            if self._run_and_batch != (progress.run, progress.batch):
                self._run_and_batch = (progress.run, progress.batch)
                self._values[_ROWS] += progress.rows

    def restarted(self) -> None:
        """Count a restart."""
        with self._lock:
            self._values[_RESTARTS] += 1

    def text(self) -> bytes:
        """Return the figures in Prometheus' text format."""
        with self._lock:
            series = [Series(one, self._labels, (value,)) for one, value in self._values.items()]
        return b"".join(Exposition().render(series))


def bind_problem(host: str, port: int, error: Exception) -> str:
    """Return in one line why a server cannot listen, and what to do."""
    code = getattr(error, "errno", None)
    if code == errno.EADDRINUSE:
        return f"port {port} of {host or 'this machine'} is taken; give another port"
    if code == errno.EACCES:
        return f"port {port} needs the rights of an administrator; give a port from 1024 on"
    reason = getattr(error, "strerror", None) or error
    return f"{host!r} is no address of this machine ({reason}); give one that is, or only the port"


class MetricsServer:
    """Serves /metrics on a port, in a thread of its own."""

    def __init__(self, metrics: StreamsMetrics, host: str, port: int) -> None:
        """Bind the port; OSError, or UnicodeError for a host that is no name."""
        self._metrics = metrics
        self._host = HttpHost(host, port, "metrics")

    @property
    def port(self) -> int:
        """The port."""
        return self._host.address[1]

    async def _answer(self, _request: Request) -> Response:
        from starlette.responses import Response

        return Response(self._metrics.text(), headers={"content-type": TEXT_TYPE})

    def __enter__(self) -> Self:
        self._host.start(lambda: [Page("/metrics", self._answer, is_public=True)])
        self._host.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._host.stop()
