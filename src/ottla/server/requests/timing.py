"""How long requests take: samples that the dispatchers of a node append to lists.

The lists are emptied into distributions four times a second (`server/metrics/requests.py`).

Kafka: kafka.network.RequestChannel.updateRequestMetrics. Hot path: benchmarks/metrics.py.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.server.requests.context import Context


class Wait(NamedTuple):
    """A request that was not answered at once; times from the start of its handling."""

    key: int
    version: int
    local_s: float
    total_s: float


class RequestTimes:
    """Samples of all listeners of a node."""

    def __init__(self) -> None:
        self.immediate: dict[int, dict[int, list[float]]] = {}
        """By API key and version: seconds of requests that were answered at once."""
        self.waits: list[Wait] = []
        self.errors: Counter[tuple[int, int]] = Counter()
        """By API key and error code: responses with an error for the whole request."""

    def add(self, ctx: Context, total_s: float) -> None:
        """Note a request that was answered at once."""
        by_version = self.immediate.get(ctx.api_key)
        if by_version is None:
            by_version = self.immediate[ctx.api_key] = {}
        samples = by_version.get(ctx.api_version)
        if samples is None:
            samples = by_version[ctx.api_version] = []
        samples.append(total_s)
