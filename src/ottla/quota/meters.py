"""Who is measured: one meter for all who share a limit, none for those without.

Kafka: ClientQuotaManager.getOrCreateQuotaSensors, org.apache.kafka.server.quota.SensorAccess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.quota.precedence import NOBODY, ClientLimits, Sharers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.metadata.image.quotas import QuotaEntity

M = TypeVar("M")

IDLE_MS = 3_600_000
"""A meter that is not asked for so long is forgotten."""
MAX_METERS = 50_000
"""Beyond that many the newcomers share one: names are free, memory is not."""
_MAX_KNOWN = 2 * MAX_METERS
_SWEEP_MS = 60_000


class Limited(Generic[M]):
    """A meter and the limit it is held against."""

    __slots__ = ("limit", "meter", "used_ms")

    def __init__(self, meter: M, limit: float) -> None:
        self.meter = meter
        self.limit = limit
        self.used_ms = 0


class Meters(Generic[M]):
    """The meters of one kind of quota."""

    def __init__(self, new_meter: Callable[[], M]) -> None:
        self._new_meter = new_meter
        self._limits = ClientLimits()
        self._meters: dict[Sharers, Limited[M]] = {}
        self._known: dict[tuple[str, str], Limited[M] | None] = {}
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._meters)

    def __iter__(self) -> Iterator[tuple[Sharers, M]]:
        """Yield who is measured together with their meter, as it is now."""
        return iter(
            [(quota_entities, limited.meter) for quota_entities, limited in self._meters.items()]
        )

    @property
    def is_on(self) -> bool:
        """Whether anybody is limited."""
        return bool(self._limits)

    def set_limit(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set or remove the limit of an entity; what was measured stays."""
        if self._limits.set_limit(entity, limit):
            self._known.clear()

    def limits(self, user: str, client_id: str) -> bool:
        """Whether anything limits a user's client."""
        return self._limits.limit(self._limits.quota_entities(user, client_id)) is not None

    def find(self, user: str, client_id: str, now_ms: int) -> Limited[M] | None:
        """Return the meter of a user's client; None when nothing limits it."""
        key = (user, client_id)
        try:
            found = self._known[key]
        except KeyError:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[key] = self._limited(self._limits.quota_entities(*key), now_ms)
        if found is not None:
            found.used_ms = now_ms
        return found

    def _limited(self, quota_entities: Sharers, now_ms: int) -> Limited[M] | None:
        limit = self._limits.limit(quota_entities)
        if limit is None:
            return None
        if quota_entities not in self._meters:
            self.forget_idle(now_ms)
            if len(self._meters) >= MAX_METERS:
                quota_entities = Sharers(NOBODY, NOBODY)
        limited = self._meters.get(quota_entities)
        if limited is None:
            limited = self._meters[quota_entities] = Limited(self._new_meter(), limit)
        limited.limit = limit
        return limited

    def forget_idle(self, now_ms: int) -> None:
        """Drop the meters of whom nobody has asked for an hour, looked for once a minute."""
        if now_ms - self._swept_ms < _SWEEP_MS:
            return
        self._swept_ms = now_ms
        idle = [key for key, one in self._meters.items() if now_ms - one.used_ms > IDLE_MS]
        for key in idle:
            del self._meters[key]
        if idle:
            self._known.clear()
