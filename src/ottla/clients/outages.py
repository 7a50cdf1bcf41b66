"""Outages of a client's brokers, topics and coordinators: one warning each, and one at their end.

Kafka: the warnings of org.apache.kafka.clients.{NetworkClient, Metadata}, which repeat them.

Clients wait for as long as an outage lasts; the log is where a user sees that they do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.clients.settings import Settings

_log = logging.getLogger("ottla.clients")

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


class Outages:
    """The current outages of one client, by subject: an address, a topic, a coordinator."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._current: dict[str, Outage] = {}

    def report(self, subject: str, cause: str, now_ms: int, *, grace_ms: int = 0) -> None:
        """Note a failure; the first is logged, or the first after the grace period."""
        cause = cause.rstrip(".")
        outage = self._current.get(subject)
        if outage is None:
            outage = self._current[subject] = Outage(cause, now_ms)
        outage.cause = cause
        if not outage.is_logged and now_ms - outage.since_ms >= grace_ms:
            outage.is_logged, outage.first_cause = True, cause
            _log.warning("%s%s: %s. Trying again.", self._prefix(), subject, cause)

    def resolve(self, subject: str, now_ms: int) -> None:
        """Note a success; logged after a logged failure."""
        outage = self._current.pop(subject, None)
        if outage is not None and outage.is_logged:
            seconds = (now_ms - outage.since_ms) / 1000
            text = "%s%s: works again after %.1f s (the failure was: %s)."
            _log.warning(text, self._prefix(), subject, seconds, outage.first_cause)

    def forget(self, subject: str) -> None:
        """Drop an outage that no longer matters."""
        self._current.pop(subject, None)

    def __contains__(self, subject: str) -> bool:
        return subject in self._current

    def causes(self) -> str:
        """Return what does not work now, for the text of an exception; empty without an outage."""
        found = [f"{subject}: {outage.cause}" for subject, outage in self._current.items()]
        return "; ".join(found[:MAX_CAUSES])

    def _prefix(self) -> str:
        settings = self._settings
        group = getattr(settings, "group_id", None)
        kind = _KINDS.get(settings.kind, settings.kind)
        return f"[{kind} clientId={settings.client_id}{f', groupId={group}' if group else ''}] "
