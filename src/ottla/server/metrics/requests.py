"""Requests timed and counted by API: a dispatcher that takes the plain one's place when it is on.

Nothing of this runs without the metrics endpoint. With it a request costs a call, two looks at a
clock and one append to a list; lists are emptied into distributions ten times a second. One loop
has no queues between threads, so queue times are zero; decoding and sending are not timed.

Kafka: kafka.network.RequestMetrics, RequestChannel.updateRequestMetrics. Hot path:
benchmarks/metrics.py.
"""

from __future__ import annotations

from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.families import Series, label_text, meter, quantile_labels, summary
from ottla.metrics.samples import QUANTILES, Recent
from ottla.protocol.api_keys import ApiKey
from ottla.purgatory.pending import Pending
from ottla.server.requests.dispatch import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.protocol.schema import Response
    from ottla.server.broker.broker import Broker
    from ottla.server.requests.context import Context
    from ottla.server.requests.dispatch import Handler

_FETCH = 1
_PLACE = ("kafka.network", "RequestMetrics")
_TOTAL = summary(*_PLACE, "TotalTimeMs", "From a decoded request to its answer, waiting included.")
_LOCAL = summary(*_PLACE, "LocalTimeMs", "Handling, without waiting.")
_REMOTE = summary(*_PLACE, "RemoteTimeMs", "Waiting for data, commits or members.")
_ON_ONE_LOOP = (
    summary(*_PLACE, "RequestQueueTimeMs", "0: one loop has no queue of requests."),
    summary(*_PLACE, "ResponseQueueTimeMs", "0: one loop has no queue of answers."),
    summary(*_PLACE, "ResponseSendTimeMs", "0: answers are sent by the loop itself, not timed."),
)
_REQUESTS = meter(*_PLACE, "RequestsPerSec", "Requests by API and version.")
_FAILED_FETCHES = meter(
    "kafka.server",
    "BrokerTopicMetrics",
    "FailedFetchRequestsPerSec",
    "Fetches that ended in an error nobody foresaw.",
)
_ERRORS = meter(*_PLACE, "ErrorsPerSec", "Answers with an error for the whole request.")


class ApiTimes:
    """The distributions of one API, in seconds."""

    __slots__ = ("local", "remote", "total")

    def __init__(self) -> None:
        self.total = Recent()
        self.local = Recent()
        self.remote = Recent()


class _Wait(NamedTuple):
    """A request that was answered later."""

    key: int
    version: int
    local_s: float
    total_s: float


class RequestCounts:
    """What the dispatchers of a node's listeners have counted together."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[int, int]] = Counter()
        """By API key and version."""
        self.errors: Counter[tuple[int, int]] = Counter()
        """By API key and error code: whole requests only."""
        self.times: dict[int, ApiTimes] = {}
        self.names: dict[int, str] = {}
        """By API key."""

    def times_of(self, key: int) -> ApiTimes:
        """Return an API's distributions."""
        times = self.times.get(key)
        if times is None:
            times = self.times[key] = ApiTimes()
        return times


class TimedDispatcher(Dispatcher):
    """Answers as its base does; its handlers note how long they take."""

    def __init__(self, broker: Broker, listener: str, counts: RequestCounts) -> None:
        super().__init__(broker, listener)
        self._counts = counts
        self._samples: dict[int, list[list[float]]] = {}
        """By API key and version: seconds of requests that were answered at once."""
        self._waits: list[_Wait] = []
        for key, api in self._apis.items():
            counts.names[key] = api.request.__name__.removesuffix("Request")
            self._samples[key] = [[] for _ in range(api.highest + 1)]
        self._apis = {
            key: api._replace(handler=self._timed(key, api.handler))
            for key, api in self._apis.items()
        }

        self._lists = [
            (key, version, samples)
            for key, by_version in self._samples.items()
            for version, samples in enumerate(by_version)
        ]
        """All of them in one row: most are empty each time they are drained."""
        self._produce_lane.samples = self._samples.get(ApiKey.PRODUCE)
        self._fetch_lane.samples = self._samples.get(ApiKey.FETCH)

    def _timed(self, key: int, handler: Handler) -> Handler:
        """Return a handler that notes its time; a call and two looks at a clock more."""
        samples, waits = self._samples[key], self._waits

        def timed(ctx: Context, request: Any) -> Any:
            started_s = perf_counter()
            try:
                result = handler(ctx, request)
            except Exception:
                samples[ctx.api_version].append(perf_counter() - started_s)
                raise
            if type(result) is Pending:
                local_s = perf_counter() - started_s
                version = ctx.api_version
                result.on_done(
                    lambda _done: waits.append(
                        _Wait(key, version, local_s, perf_counter() - started_s)
                    )
                )
            else:
                samples[ctx.api_version].append(perf_counter() - started_s)
            return result

        return timed

    def _error_response(self, ctx: Context, error: Exception) -> Response | None:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self._counts.errors[ctx.api_key, int(code)] += 1
        return super()._error_response(ctx, error)

    def drain(self) -> None:
        """Empty the lists into the distributions."""
        counts = self._counts
        for key, version, samples in [one for one in self._lists if one[2]]:
            counts.requests[key, version] += len(samples)
            times = counts.times_of(key)
            times.local.extend(samples)
            times.total.extend(samples)
            samples.clear()
        for wait in self._waits:
            counts.requests[wait.key, wait.version] += 1
            times = counts.times_of(wait.key)
            times.local.add(wait.local_s)
            times.total.add(wait.total_s)
            times.remote.add(wait.total_s - wait.local_s)
        self._waits.clear()


class RequestMetrics:
    """The requests of all listeners of a node."""

    def __init__(self) -> None:
        self.counts = RequestCounts()
        self._dispatchers: list[TimedDispatcher] = []
        self._labels: dict[str, tuple[str, ...]] = {}

    def dispatcher(self, broker: Broker, listener: str) -> Dispatcher:
        """Return a dispatcher for one kind of listener whose requests are counted here."""
        made = TimedDispatcher(broker, listener, self.counts)
        self._dispatchers.append(made)
        return made

    def drain(self) -> None:
        """Empty the lists that requests append to."""
        for one in self._dispatchers:
            one.drain()

    def collect(self) -> Iterator[Series]:
        """Yield times by API, requests by version, errors by code."""
        self.drain()
        times, names = self.counts.times, self.counts.names
        shown = [(name, times[key]) for key in sorted(times) for name in _shown_names(names[key])]
        labels = tuple(label for name, _ in shown for label in self._labels_of(name))
        yield Series(_TOTAL, labels, _columns(one.total for _, one in shown))
        yield Series(_LOCAL, labels, _columns(one.local for _, one in shown))
        yield Series(_REMOTE, labels, _columns(one.remote for _, one in shown))
        for family in _ON_ONE_LOOP:
            yield Series(family, labels, _nothing(one.total.count for _, one in shown))
        requests, errors = self.counts.requests, self.counts.errors
        failed = errors[_FETCH, int(ErrorCode.UNKNOWN_SERVER_ERROR)]
        yield Series(_FAILED_FETCHES, ("",), (failed,))
        labels = tuple(label_text(request=names[key], version=version) for key, version in requests)
        yield Series(_REQUESTS, labels, list(requests.values()))
        labels = tuple(
            label_text(request=names[key], error=ErrorCode(code).name) for key, code in errors
        )
        yield Series(_ERRORS, labels, list(errors.values()))

    def _labels_of(self, name: str) -> tuple[str, ...]:
        known = self._labels.get(name)
        if known is None:
            known = self._labels[name] = quantile_labels(QUANTILES, request=name)
        return known


def _shown_names(name: str) -> tuple[str, ...]:
    """Return the labels of an API; Kafka shows consumers' fetches apart as well."""
    return (name, "FetchConsumer") if name == "Fetch" else (name,)


def _columns(all_recent: Iterable[Recent]) -> list[float]:
    columns: list[float] = []
    for recent in all_recent:
        columns += [one * 1000 for one in (*recent.quantiles(), recent.total)]
        columns.append(recent.count)
    return columns


def _nothing(counts: Iterable[int]) -> list[float]:
    zeros = [0.0] * (len(QUANTILES) + 1)
    return [value for count in counts for value in (*zeros, count)]
