"""Metrics of requests by API (times, counts, errors), and of the quotas on clients.

Without the metrics endpoint nothing is recorded. With it, a request costs two reads of a clock and
one append to a list (`server/requests/dispatch.py`); four times a second the lists are moved into
distributions. There are no queues between threads, so queue times are zero. Decoding is not timed.

Kafka: kafka.network.RequestMetrics, RequestChannel.updateRequestMetrics; ClientQuotaManager,
kafka.server:type={Produce,Fetch,Request},user=…,client-id=…. Hot path: benchmarks/metrics.py.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode
from ottla.metrics.families import (
    Family,
    Series,
    client_gauge,
    label_text,
    meter,
    quantile_labels,
    summary,
)
from ottla.metrics.samples import QUANTILES, Recent
from ottla.protocol.api_keys import ApiKey
from ottla.server.requests.dispatch import RequestTimes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.clock import Clock
    from ottla.quota.quotas import Quotas
    from ottla.quota.rates import ClientUse, RateQuota

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
    "Fetches that ended in an unexpected error.",
)
_ERRORS = meter(*_PLACE, "ErrorsPerSec", "Answers with an error for the whole request.")


class ApiTimes:
    """The distributions of one API, in seconds."""

    __slots__ = ("local", "remote", "total")

    def __init__(self) -> None:
        self.total = Recent()
        self.local = Recent()
        self.remote = Recent()


class RequestMetrics:
    """The requests of all listeners of a node."""

    def __init__(self) -> None:
        self.times = RequestTimes()
        """The lists of the dispatchers."""
        self.requests: Counter[tuple[int, int]] = Counter()
        """By API key and version."""
        self._by_api: dict[int, ApiTimes] = {}
        self._labels: dict[str, tuple[str, ...]] = {}

    def times_of(self, key: int) -> ApiTimes:
        """Return an API's distributions."""
        times = self._by_api.get(key)
        if times is None:
            times = self._by_api[key] = ApiTimes()
        return times

    def drain(self) -> None:
        """Move the lists of the dispatchers into the distributions."""
        for key, by_version in self.times.immediate.items():
            for version, samples in by_version.items():
                if samples:
                    self.requests[key, version] += len(samples)
                    times = self.times_of(key)
                    times.local.extend(samples)
                    times.total.extend(samples)
                    samples.clear()
        for wait in self.times.waits:
            self.requests[wait.key, wait.version] += 1
            times = self.times_of(wait.key)
            times.local.add(wait.local_s)
            times.total.add(wait.total_s)
            times.remote.add(wait.total_s - wait.local_s)
        self.times.waits.clear()

    def collect(self) -> Iterator[Series]:
        """Yield times by API, requests by version, errors by code."""
        self.drain()
        times = self._by_api
        shown = [(name, times[key]) for key in sorted(times) for name in _shown_names(_name(key))]
        labels = tuple(label for name, _ in shown for label in self._labels_of(name))
        yield Series(_TOTAL, labels, _columns(one.total for _, one in shown))
        yield Series(_LOCAL, labels, _columns(one.local for _, one in shown))
        yield Series(_REMOTE, labels, _columns(one.remote for _, one in shown))
        for family in _ON_ONE_LOOP:
            counts = (one.total.count for _, one in shown)
            zeros = [0.0] * (len(QUANTILES) + 1)
            yield Series(family, labels, ([value for count in counts for value in (*zeros, count)]))
        requests, errors = self.requests, self.times.errors
        failed = errors[_FETCH, int(ErrorCode.UNKNOWN_SERVER_ERROR)]
        yield Series(_FAILED_FETCHES, ("",), (failed,))
        labels = tuple(label_text(request=_name(key), version=version) for key, version in requests)
        yield Series(_REQUESTS, labels, list(requests.values()))
        labels = tuple(
            label_text(request=_name(key), error=ErrorCode(code).name) for key, code in errors
        )
        yield Series(_ERRORS, labels, list(errors.values()))

    def _labels_of(self, name: str) -> tuple[str, ...]:
        known = self._labels.get(name)
        if known is None:
            known = self._labels[name] = quantile_labels(QUANTILES, request=name)
        return known


def _name(key: int) -> str:
    return ApiKey(key).api_name


def _shown_names(name: str) -> tuple[str, ...]:
    """Return the labels of an API; as in Kafka, consumers' fetches also have their own."""
    return (name, "FetchConsumer") if name == "Fetch" else (name,)


def _columns(all_recent: Iterable[Recent]) -> list[float]:
    columns: list[float] = []
    for recent in all_recent:
        columns += [seconds * 1000 for seconds in (*recent.quantiles(), recent.total)]
        columns.append(recent.count)
    return columns


_A_SLICE = 100
"""Clients between two turns of the loop."""
_THROTTLE_TIME = "Mean throttle time of throttled requests over the window, in milliseconds."


class _Kind(NamedTuple):
    """The families of one kind of quota."""

    use: Family
    throttle_time: Family


_PRODUCE = _Kind(
    client_gauge("Produce", "byte-rate", "Bytes a second that limited clients produce."),
    client_gauge("Produce", "throttle-time", _THROTTLE_TIME),
)
_FETCH_QUOTA = _Kind(
    client_gauge("Fetch", "byte-rate", "Bytes a second that limited clients fetch."),
    client_gauge("Fetch", "throttle-time", _THROTTLE_TIME),
)
_REQUEST = _Kind(
    client_gauge("Request", "request-time", "Share of the loop's time, in percent."),
    client_gauge("Request", "throttle-time", _THROTTLE_TIME),
)
_LEADER = client_gauge(
    "LeaderReplication", "byte-rate", "Bytes a second sent to followers, of listed replicas."
)
_FOLLOWER = client_gauge(
    "FollowerReplication", "byte-rate", "Bytes a second fetched from leaders, of listed replicas."
)
_DIRECTORIES = client_gauge(
    "AlterLogDirsReplication", "byte-rate", "Bytes a second copied between log directories."
)


class QuotaMetrics:
    """The metrics of a node's quotas."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._clock = clock
        self._replication = (
            (_LEADER, quotas.replication.leader),
            (_FOLLOWER, quotas.replication.follower),
            (_DIRECTORIES, quotas.replication.directories),
        )
        self._kinds = (
            (_PRODUCE, quotas.produced),
            (_FETCH_QUOTA, quotas.fetched),
            (_REQUEST, quotas.requests),
        )

    def collect(self) -> Iterator[Series | None]:
        """Yield rates and throttle times by client, and None where the loop may take a turn."""
        for kind, quota in self._kinds:
            yield from self._of_one(kind, quota)
        for family, limit in self._replication:
            if limit.is_on or limit.is_used:
                rate = round(limit.rate(self._clock.monotonic_ms()), 3)
                yield Series(family, [""], [rate])

    def _of_one(self, kind: _Kind, quota: RateQuota) -> Iterator[Series | None]:
        uses = quota.uses(self._clock.monotonic_ms())
        found: list[ClientUse] = []
        while some := list(islice(uses, _A_SLICE)):
            found += some
            yield None
        labels = [
            label_text(user=figure.entity.user, client_id=figure.entity.client_id)
            for figure in found
        ]
        if labels:
            yield Series(kind.use, labels, [round(figure.rate, 3) for figure in found])
            yield Series(
                kind.throttle_time, labels, [round(figure.throttle_time_ms, 3) for figure in found]
            )
