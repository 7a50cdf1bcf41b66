"""A broker's settings while it runs: static ones, dynamic changes, and listeners of changes.

Kafka: kafka.server.DynamicBrokerConfig.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ottla.config.reconfiguration import refusal
from ottla.metadata.resources import ConfigResourceType
from ottla.network.limits import UNLIMITED, parse_overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.image.image import MetadataImage

_CORDON_ALL = "*"


class DynamicSettings:
    """`current` is in force; it is a new object after each change."""

    def __init__(
        self,
        static: BrokerConfig,
        trials: Sequence[Callable[[BrokerConfig, BrokerConfig], str | None]] = (),
    ) -> None:
        """trials(current, proposed) open files and load classes; a text refuses a change."""
        self.static = static
        self._own_name = str(static.node_id)
        self.current = static
        self._listeners: list[Callable[[BrokerConfig], None]] = []
        self._trials = trials

    def on_change(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Call listener(new) whenever settings have changed."""
        self._listeners.append(listener)

    def apply(self, image: MetadataImage) -> None:
        """Apply the stored settings of this broker and of all brokers."""
        stored = image.configs.of
        self.current = self.static.with_dynamic(
            stored(ConfigResourceType.BROKER, ""),
            stored(ConfigResourceType.BROKER, self._own_name),
        )
        for listener in self._listeners:
            listener(self.current)

    def refusal(
        self, image: MetadataImage, resource_name: str, settings: Mapping[str, str]
    ) -> str | None:
        """Say why this broker could not run if a broker resource had exactly these settings.

        It only compares values; what the settings name is opened by `trial`.
        """
        if resource_name not in {"", self._own_name}:
            return None
        return refusal(self.static, self.current, self._after(image, resource_name, settings))

    def trial(
        self, image: MetadataImage, resource_name: str, settings: Mapping[str, str]
    ) -> Callable[[], str | None]:
        """Return a job for a worker that says why the files and classes named cannot be used."""
        current = self.current
        proposed = self.static.with_dynamic(self._after(image, resource_name, settings))

        def run() -> str | None:
            texts = (trial(current, proposed) for trial in self._trials)
            return next((text for text in texts if text is not None), None)

        return run

    def _after(
        self, image: MetadataImage, resource_name: str, settings: Mapping[str, str]
    ) -> dict[str, str]:
        """Return all stored settings of this broker after a change of one resource."""
        stored = image.configs.of
        cluster = stored(ConfigResourceType.BROKER, "") if resource_name else settings
        own = settings if resource_name else stored(ConfigResourceType.BROKER, self._own_name)
        return {**cluster, **own}


def address_limits(
    config: BrokerConfig, addresses: Mapping[str, Collection[str]]
) -> dict[str, int]:
    """Return max.connections.per.ip.overrides by address.

    `addresses` are those of names. As in Kafka a name without addresses is ignored: it cannot
    connect either.
    """
    limits: dict[str, int] = {}
    for host, limit in _overrides(config).items():
        found = sorted(addresses.get(host, ())) if _is_name(host) else [_bare(host)]
        limits.update(dict.fromkeys(found, limit))
    return limits


def limited_names(config: BrokerConfig) -> list[str]:
    """Return the hosts of max.connections.per.ip.overrides that have to be resolved."""
    return [host for host in _overrides(config) if _is_name(host)]


def _overrides(config: BrokerConfig) -> dict[str, int]:
    return parse_overrides(config.max_connections_per_ip_overrides)


def _bare(host: str) -> str:
    return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))


def _is_name(host: str) -> bool:
    try:
        _bare(host)
    except ValueError:
        return True
    return False


def listener_limit(config: BrokerConfig, listener: str) -> int:
    """Return listener.name.<name>.max.connections: the limit of one listener."""
    name = f"listener.name.{listener.lower()}.max.connections"
    text = config.overrides.get(name, config.given.get(name))
    return int(text) if text is not None and str(text).strip().isdecimal() else UNLIMITED


def cordoned_directories(config: BrokerConfig) -> frozenset[str]:
    """Return the log directories that get no new partitions (KIP-1066)."""
    cordoned = config.cordoned_log_dirs or ()
    return frozenset(config.data_directories if cordoned == (_CORDON_ALL,) else cordoned)
