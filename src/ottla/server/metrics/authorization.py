"""Metrics of the authorizer: entries, and decisions in a minute.

Kafka: the plugin metrics of org.apache.kafka.metadata.authorizer.StandardAuthorizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.metrics.families import Series, client_gauge, label_text
from ottla.metrics.rates import Meter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.security.authorizer import StandardAuthorizer

_LABELS: Final = (
    label_text(config="authorizer.class.name", **{"class": "StandardAuthorizer"}, role="broker"),
)
_SECONDS: Final = 60
_ENTRIES = client_gauge("plugins", "acls-total-count", "Access control entries.")
_REQUESTS = client_gauge(
    "plugins", "authorization-request-rate-per-minute", "Decisions of the authorizer in a minute."
)
_ALLOWED = client_gauge(
    "plugins", "authorization-allowed-rate-per-minute", "Decisions to allow in a minute."
)
_DENIED = client_gauge(
    "plugins", "authorization-denied-rate-per-minute", "Decisions to deny in a minute."
)


class AuthorizationMetrics:
    """The metrics of one node's authorizer; used on the node's loop only."""

    def __init__(self, authorizer: StandardAuthorizer | None, *, now_s: float) -> None:
        self._authorizer = authorizer
        self._requests = Meter(now_s)
        self._denied = Meter(now_s)

    def tick(self, now_s: float) -> None:
        """Sample the counters."""
        authorizer = self._authorizer
        if authorizer is not None:
            self._requests.update(authorizer.decision_count, now_s)
            self._denied.update(authorizer.denied_count, now_s)

    def collect(self) -> Iterator[Series]:
        """Yield all series, none without an authorizer."""
        if self._authorizer is None:
            return
        requests, denied = (
            one.one_minute_rate * _SECONDS for one in (self._requests, self._denied)
        )
        yield Series(_ENTRIES, _LABELS, (len(self._authorizer),))
        yield Series(_REQUESTS, _LABELS, (requests,))
        yield Series(_ALLOWED, _LABELS, (max(requests - denied, 0.0),))
        yield Series(_DENIED, _LABELS, (denied,))
