"""All quotas of a node, updated from the cluster metadata.

Kafka: kafka.server.QuotaFactory, kafka.server.metadata.ClientQuotaMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.metadata.resources import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ConfigResourceType,
)
from ottla.metrics.ledger import BoundedCache
from ottla.metrics.sampled_stat import SampleWindow
from ottla.quota.connections import UNLIMITED, ConnectionRates
from ottla.quota.meters import KNOWN_BYTES
from ottla.quota.rates import MutationQuota, RateQuota
from ottla.quota.replication import ReplicationQuotas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.metadata.resources import QuotaEntity
    from ottla.metrics.ledger import Ledger

_LISTENER_RATE: Final = "listener.name.{}.max.connection.creation.rate"


class _Limits(Protocol):
    def set_limit(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set or remove the limit of an entity."""


class Quotas:
    """The limits and the measured usage."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the sample windows and the connection limits from the configuration."""
        sample_ms = config.quota_window_size_seconds * 1000
        window = SampleWindow(config.quota_window_num, sample_ms)
        mutation_window = SampleWindow(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self.produced = RateQuota(window)
        self.fetched = RateQuota(window)
        self.requests = RateQuota(window, max_throttle_ms=sample_ms)
        self.mutations = MutationQuota(mutation_window)
        self.connections = ConnectionRates(window, protected_listener=_protected(config))
        """Of the listeners for clients; controller listeners have no limit."""
        self.replication = ReplicationQuotas(config)
        self._by_key: dict[str, _Limits] = {
            PRODUCER_BYTE_RATE: self.produced,
            CONSUMER_BYTE_RATE: self.fetched,
            REQUEST_PERCENTAGE: self.requests,
            CONTROLLER_MUTATION_RATE: self.mutations,
            CONNECTION_CREATION_RATE: self.connections,
        }
        self._of_clients = (self.produced, self.fetched, self.requests, self.mutations)
        self._concerned: BoundedCache[tuple[str, str], bool] = BoundedCache(KNOWN_BYTES)
        self.is_on = False
        """Whether any client has a limit; otherwise nothing is measured."""
        self.version = 0
        """Incremented when a limit changes, to invalidate cached results of `concerns`."""
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed limits on connections."""
        listeners = {}
        for endpoint in config.broker_endpoints:
            text = _given(config, _LISTENER_RATE.format(endpoint.listener.lower()))
            if text is not None and text.isdecimal():
                listeners[endpoint.listener] = min(int(text), UNLIMITED)
        self.connections.set_node_limits(config.max_connection_creation_rate, listeners)

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the changed limits, and the rates of replication in the settings of brokers."""
        if delta.quotas_changed:
            self.update(image.quotas.by_entity, delta.quotas_changed)
        if any(resource.type == ConfigResourceType.BROKER for resource in delta.configs_changed):
            self.replication.set_rates(image.configs)

    def update(
        self,
        by_entity: Mapping[QuotaEntity, Mapping[str, float]],
        changed: Iterable[QuotaEntity],
    ) -> None:
        """Apply the stored limits of these entities."""
        for entity in changed:
            limits = by_entity.get(entity, {})
            for key, quota in self._by_key.items():
                quota.set_limit(entity, limits.get(key))
        self._concerned.clear()
        self.is_on = any(quota.is_on for quota in self._of_clients)
        self.version += 1

    def concerns(self, user: str, client_id: str) -> bool:
        """Whether a user's client has a limit; requests of other clients are not measured."""
        key = (user, client_id)
        known = self._concerned.known.get(key)
        if known is None:
            known = any(quota.limits(user, client_id) for quota in self._of_clients)
            self._concerned.keep(key, known, user, client_id)
        return known

    def account_in(self, ledger: Ledger) -> None:
        """Register what is kept for clients."""
        cache = self._concerned
        ledger.register("quotas_concerned", cache.bound_bytes, cache.measure)
        self.produced.account_in(ledger, "produce")
        self.fetched.account_in(ledger, "fetch")
        self.requests.account_in(ledger, "request")
        self.mutations.account_in(ledger, "mutation")
        self.connections.account_in(ledger)


def _protected(config: BrokerConfig) -> str:
    """Return the listener between brokers, unless it serves the clients too."""
    return config.inter_broker_endpoint_name if len(config.broker_endpoints) > 1 else ""


def _given(config: BrokerConfig, name: str) -> str | None:
    value = config.overrides.get(name, config.given.get(name))
    return None if value is None else str(value).strip()
