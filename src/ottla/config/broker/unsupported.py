"""Settings with which a node does not start: features not implemented yet, names Kafka removed.

Kafka 4.3 ignores them with a line in the log, as any unknown name.

Kafka: no counterpart. A node must not silently ignore settings of security or replication. When
a feature is implemented, its line is removed from the table; the notable changes of releases 2
to 4 (docs/upgrade.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.config.broker.replication import RACK_AWARE_SELECTOR
from ottla.config.problems import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.config.broker.config import BrokerConfig


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class Refusal(NamedTuple):
    """A setting, the condition under which it is refused, and the feature it requires."""

    name: str
    requires: Callable[[BrokerConfig], bool]
    part: str


def _set(name: str) -> Callable[[BrokerConfig], bool]:
    def requires(config: BrokerConfig) -> bool:
        value: Any = config.value(name)
        return bool(value) and value != config.keys[name].default

    return requires


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "remote.log.metadata.manager.class.name",
        lambda config: (
            config.remote_log_storage_system_enable
            and _set("remote.log.metadata.manager.class.name")(config)
        ),
        "another store of remote segments' metadata than Kafka's topic",
    ),
    Refusal("client.quota.callback.class", _set("client.quota.callback.class"), "quota plug-ins"),
    Refusal(
        "replica.selector.class",
        lambda config: (
            (config.replica_selector_class or RACK_AWARE_SELECTOR) != RACK_AWARE_SELECTOR
        ),
        f"a replica selector other than {RACK_AWARE_SELECTOR}",
    ),
)


def unsupported_settings(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting that requires a feature that is not implemented."""
    for name, requires, part in REFUSALS:
        if requires(config):
            text = config.text(name)
            shown = "[hidden]" if config.keys[name].sensitive else text
            message = f"{name}={shown} requires {part}, which Ottla does not implement yet"
            yield ConfigProblem(name, shown, message)


_ZOOKEEPER: Final = "Kafka 4 has no ZooKeeper; remove it"
_DYNAMIC_SECRETS: Final = (
    "it encrypted changed settings in ZooKeeper; remove it, and set changed passwords again"
)
_LISTENERS: Final = "set listeners"
_ADVERTISED: Final = "set advertised.listeners"
_FORMAT: Final = "records are always written in format 2; remove it"
_QUOTA: Final = "set it with `ottla configs --alter --entity-type clients --entity-default`"

_PREFIXES: Final = {
    "zookeeper.": _ZOOKEEPER,
    "password.encoder.": _DYNAMIC_SECRETS,
}
_ADVICE: Final = {
    "advertised.host.name": _ADVERTISED,
    "advertised.port": _ADVERTISED,
    "auto.include.jmx.reporter": "metrics are exported at metrics.listener; remove it",
    "broker.id.generation.enable": "set node.id",
    "control.plane.listener.name": (
        "it was of ZooKeeper's controller; controller.listener.names has the controllers' listeners"
    ),
    "delegation.token.master.key": "it is named delegation.token.secret.key now",
    "eligible.leader.replicas.enable": (
        "set the feature eligible.leader.replicas.version with `ottla features`"
    ),
    "group.coordinator.new.enable": "there is one group coordinator; remove it",
    "host.name": _LISTENERS,
    "inter.broker.protocol.version": (
        "the cluster has one metadata.version, which `ottla features upgrade` raises; remove it"
    ),
    "log.message.downconversion.enable": (
        "clients older than Kafka 2.1 are not served any more; remove it"
    ),
    "log.message.format.version": _FORMAT,
    "log.message.timestamp.difference.max.ms": (
        "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "message.format.version": _FORMAT,
    "message.timestamp.difference.max.ms": (
        "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "offsets.commit.required.acks": "offsets are always committed with acks=all; remove it",
    "port": _LISTENERS,
    "quota.consumer.default": _QUOTA,
    "quota.producer.default": _QUOTA,
    "replica.lag.max.messages": "set replica.lag.time.max.ms",
    "reserved.broker.max.id": "set node.id",
    "unstable.metadata.versions.enable": "it is named unstable.feature.versions.enable now",
}


def removed_setting(name: str) -> str | None:
    """Return the advice on a name that Kafka 4 has removed, None for any other name."""
    found = _ADVICE.get(name)
    if found is None:
        found = next((text for prefix, text in _PREFIXES.items() if name.startswith(prefix)), None)
    return None if found is None else f"Kafka 4 has removed {name}: {found}"
