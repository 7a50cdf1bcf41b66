"""One meter for each quota entity with a limit; clients without a limit have none.

Kafka: ClientQuotaManager.getOrCreateQuotaSensors, org.apache.kafka.server.quota.SensorAccess;
ClientQuotaManager.DefaultQuotaCallback, org.apache.kafka.server.quota.ClientQuotaEntity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ottla.metadata.resources import CLIENT_ID, USER
from ottla.metrics.ledger import BoundedCache, size_of_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.metadata.resources import QuotaEntity
    from ottla.metrics.ledger import Ledger

K = TypeVar("K")

ALL: Final = ""
_USER_CLIENT, _USER, _CLIENT = 4, 2, 1


class ClientQuotaEntity(NamedTuple):
    """The clients that share one limit; an empty name stands for all."""

    user: str
    client_id: str


class ClientLimits:
    """The limits of one key, by entity; None in an entity names the default."""

    def __init__(self) -> None:
        self._of_users: dict[str | None, float] = {}
        self._of_clients: dict[str | None, float] = {}
        self._of_pairs: dict[tuple[str | None, str | None], float] = {}
        self._kinds = 0

    def set_limit(self, entity: QuotaEntity, limit: float | None) -> bool:
        """Set a limit, or remove it with None; return whether anything changed."""
        names = dict(entity)
        changed = False
        if USER in names and CLIENT_ID in names:
            changed = _put(self._of_pairs, (names[USER], names[CLIENT_ID]), limit)
        elif USER in names:
            changed = _put(self._of_users, names[USER], limit)
        elif CLIENT_ID in names:
            changed = _put(self._of_clients, names[CLIENT_ID], limit)
        self._kinds = (
            (_USER_CLIENT if self._of_pairs else 0)
            | (_USER if self._of_users else 0)
            | (_CLIENT if self._of_clients else 0)
        )
        return changed

    def __bool__(self) -> bool:
        """Whether any limit is set."""
        return self._kinds != 0

    def entity_of(self, user: str, client_id: str) -> ClientQuotaEntity:
        """Return the quota entity whose limit applies to this client."""
        if self._kinds == _CLIENT:
            return ClientQuotaEntity(ALL, client_id)
        if self._kinds == _USER:
            return ClientQuotaEntity(user, ALL)
        if self._kinds == _USER_CLIENT:
            return ClientQuotaEntity(user, client_id)
        for level in (user, None):
            if (level, client_id) in self._of_pairs or (level, None) in self._of_pairs:
                return ClientQuotaEntity(user, client_id)
            if level in self._of_users:
                return ClientQuotaEntity(user, ALL)
        return ClientQuotaEntity(ALL, client_id)

    def limit(self, entity: ClientQuotaEntity) -> float | None:
        """Return the limit of an entity; None without one."""
        user, client_id = entity
        if user and client_id:
            pairs = ((user, client_id), (user, None), (None, client_id), (None, None))
            return next((self._of_pairs[pair] for pair in pairs if pair in self._of_pairs), None)
        if user:
            return self._of_users.get(user, self._of_users.get(None))
        if client_id:
            return self._of_clients.get(client_id, self._of_clients.get(None))
        return None


def _put(limits: dict[K, float], key: K, limit: float | None) -> bool:
    before = limits.get(key)
    if limit is None:
        limits.pop(key, None)
    else:
        limits[key] = limit
    return before != limit


M = TypeVar("M")

IDLE_MS = 3_600_000
"""A meter unused for this long is removed."""
MAX_METERS = 50_000
"""Beyond this number new entities share one meter: client ids are unbounded, memory is not."""
KNOWN_BYTES = 4 << 20
"""Of the cache that finds the meter of a client."""
_NAME_BYTES = 16 << 20
_METER_BYTES = 1024
_SWEEP_MS = 60_000


class Limited(Generic[M]):
    """A meter and its limit."""

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
        self._meters: dict[ClientQuotaEntity, Limited[M]] = {}
        self._known: BoundedCache[tuple[str, str], Limited[M] | None] = BoundedCache(KNOWN_BYTES)
        self._name_bytes = 0
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._meters)

    def __iter__(self) -> Iterator[tuple[ClientQuotaEntity, M]]:
        """Yield each quota entity with its meter, of a copy of the current state."""
        return iter([(entity, limited.meter) for entity, limited in self._meters.items()])

    @property
    def is_on(self) -> bool:
        """Whether any limit is set."""
        return bool(self._limits)

    def set_limit(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set or remove the limit of an entity; its measured values stay."""
        if self._limits.set_limit(entity, limit):
            self._known.clear()

    def limits(self, user: str, client_id: str) -> bool:
        """Whether a user's client has a limit."""
        return self._limits.limit(self._limits.entity_of(user, client_id)) is not None

    def find(self, user: str, client_id: str, now_ms: int) -> Limited[M] | None:
        """Return the meter of a user's client; None without a limit."""
        key = (user, client_id)
        try:
            found = self._known.known[key]
        except KeyError:
            found = self._limited(self._limits.entity_of(*key), now_ms)
            self._known.keep(key, found, user, client_id)
        if found is not None:
            found.used_ms = now_ms
        return found

    def _limited(self, entity: ClientQuotaEntity, now_ms: int) -> Limited[M] | None:
        limit = self._limits.limit(entity)
        if limit is None:
            return None
        if entity not in self._meters:
            self.forget_idle(now_ms)
            size_bytes = _size_of(entity)
            if len(self._meters) >= MAX_METERS or self._name_bytes + size_bytes > _NAME_BYTES:
                entity = ClientQuotaEntity(ALL, ALL)
        limited = self._meters.get(entity)
        if limited is None:
            self._name_bytes += _size_of(entity)
            limited = self._meters[entity] = Limited(self._new_meter(), limit)
        limited.limit = limit
        return limited

    def account_in(self, ledger: Ledger, name: str) -> None:
        """Register what is kept for clients."""
        ledger.register(f"quota_{name}_known", self._known.bound_bytes, self._known.measure)
        bound_bytes = _NAME_BYTES + MAX_METERS * _METER_BYTES
        ledger.register(f"quota_{name}_meters", bound_bytes, self._measure)

    def _measure(self) -> tuple[int, int]:
        return len(self._meters), self._name_bytes + len(self._meters) * _METER_BYTES

    def forget_idle(self, now_ms: int) -> None:
        """Remove meters unused for an hour; checked once a minute."""
        if now_ms - self._swept_ms < _SWEEP_MS:
            return
        self._swept_ms = now_ms
        idle = [key for key, one in self._meters.items() if now_ms - one.used_ms > IDLE_MS]
        for key in idle:
            del self._meters[key]
            self._name_bytes -= _size_of(key)
        if idle:
            self._known.clear()


def _size_of(entity: ClientQuotaEntity) -> int:
    """Return the bytes of the names that clients chose."""
    return size_of_texts(*(name for name in entity if isinstance(name, str)))
