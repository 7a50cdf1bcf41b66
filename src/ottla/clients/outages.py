"""The log of a client: a warning for each outage and for its end, and lines at DEBUG.

Kafka: the warnings of org.apache.kafka.clients.{NetworkClient, Metadata}, which repeat them.

Clients wait for as long as an outage lasts; the log is where a user sees that they do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.clients.metadata import ClusterMetadata, TopicMetadata
    from ottla.clients.settings import ValidatedSettings
    from ottla.types import TopicPartition

_log = logging.getLogger("ottla.clients")
_CONTEXTS = {
    name: logging.getLogger(f"ottla.clients.{name}")
    for name in ("connection", "metadata", "group", "fetch", "producer", "consumer")
}

GRACE_MS = 500
"""How long a new topic or group may take to get ready without a warning."""
MAX_CAUSES = 3
_KINDS = {"producer": "Producer", "consumer": "Consumer", "admin-client": "AdminClient"}


class Outage:
    """Something that does not work now."""

    __slots__ = ("cause", "first_cause", "is_logged", "since_ms")

    def __init__(self, cause: str, since_ms: int) -> None:
        self.cause = self.first_cause = cause
        self.since_ms = since_ms
        self.is_logged = False


class ClientTrace:
    """The lines of one client at DEBUG, by context: each has a Python logger of its own.

    Kafka: the debug contexts of librdkafka.
    """

    def __init__(self, settings: ValidatedSettings) -> None:
        self._settings = settings

    def is_on(self, context: str) -> bool:
        """Whether lines of a context are logged: callers that format a lot ask before."""
        return _CONTEXTS[context].isEnabledFor(logging.DEBUG)

    def add(self, context: str, text: str, *values: object) -> None:
        """Log a line."""
        logger = _CONTEXTS[context]
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s%s", self.prefix(), text % values)

    def metadata_updated(self, metadata: ClusterMetadata) -> None:
        """Log what a response says of the topics in use."""
        if self.is_on("metadata"):
            topics = ", ".join(
                f"{topic.name} ({topic.problem or f'{len(topic.partitions)} partitions'})"
                for topic in metadata.topics.values()
            )
            text = "metadata: %d brokers; topics: %s"
            self.add("metadata", text, len(metadata.brokers), topics or "none")

    def stored(self, partition: TopicPartition, count: int, offset: int) -> None:
        """Log records that the broker has acknowledged."""
        self.add("producer", "%s: %d records stored at offset %d", partition, count, offset)

    def prefix(self) -> str:
        """Return the name of the client, as each line begins."""
        settings = self._settings
        group = getattr(settings, "group_id", None)
        kind = _KINDS.get(settings.kind, settings.kind)
        return f"[{kind} clientId={settings.client_id}{f', groupId={group}' if group else ''}] "


class Outages:
    """The current outages of one client, by subject: an address, a topic, a coordinator."""

    def __init__(self, trace: ClientTrace) -> None:
        self._trace = trace
        self._current: dict[str, Outage] = {}
        self._topics: set[str] = set()  # of those that are in `_current`

    def report(
        self, subject: str, cause: str, now_ms: int, *, grace_ms: int = 0, is_final: bool = False
    ) -> None:
        """Note a failure; the first is logged, or the first after the grace period.

        is_final: calls fail with it, for example after a rejected login.
        """
        cause = cause.rstrip(".")
        outage = self._current.get(subject)
        if outage is None:
            outage = self._current[subject] = Outage(cause, now_ms)
        outage.cause = cause
        if not outage.is_logged and now_ms - outage.since_ms >= grace_ms:
            outage.is_logged, outage.first_cause = True, cause
            then = "Calls fail with this." if is_final else "Trying again."
            _log.warning("%s%s: %s. %s", self._trace.prefix(), subject, cause, then)

    def resolve(self, subject: str, now_ms: int) -> None:
        """Note a success; logged after a logged failure."""
        outage = self._current.pop(subject, None)
        if outage is not None and outage.is_logged:
            seconds = (now_ms - outage.since_ms) / 1000
            text = "%s%s: works again after %.1f s (the failure was: %s)."
            _log.warning(text, self._trace.prefix(), subject, seconds, outage.first_cause)

    def forget(self, subject: str) -> None:
        """Drop an outage that no longer matters."""
        self._current.pop(subject, None)

    def report_topics(self, topics: Mapping[str, TopicMetadata], now_ms: int) -> None:
        """Note topics in use that are missing or have no leader, and those that are back."""
        problems = {
            name: topic.problem for name, topic in topics.items() if topic.problem is not None
        }
        for name, cause in problems.items():
            self.report(f"topic {name!r}", cause, now_ms, grace_ms=GRACE_MS)
        for name in self._topics - problems.keys():
            if name in topics:
                self.resolve(f"topic {name!r}", now_ms)
            else:
                self.forget(f"topic {name!r}")
        self._topics = set(problems)

    def __contains__(self, subject: str) -> bool:
        return subject in self._current

    def causes(self) -> str:
        """Return the current outages, for the text of an exception; empty without one."""
        found = [f"{subject}: {outage.cause}" for subject, outage in self._current.items()]
        return "; ".join(found[:MAX_CAUSES])
