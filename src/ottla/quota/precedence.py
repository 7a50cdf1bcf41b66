"""Which stored limit applies to a user's client, and which quota entity shares it.

Kafka: ClientQuotaManager.DefaultQuotaCallback, org.apache.kafka.server.quota.ClientQuotaEntity.

Eight levels, the first that is set wins: user and client id; user, default client id; user; default
user and client id; default user, default client id; default user; client id; default client id.
A limit of users alone is shared by all clients of the user, a limit of client ids alone by all
users of that client id; a limit of both applies to each pair on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.metadata.quota_keys import CLIENT_ID, USER

if TYPE_CHECKING:
    from ottla.metadata.quota_keys import QuotaEntity

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
