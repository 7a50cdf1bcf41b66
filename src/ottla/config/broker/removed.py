"""Names of settings that Kafka 4 has no more, and what takes their place.

Kafka 4.3 ignores them with a line in the log, as any unknown name.

Kafka: the notable changes of releases 2 to 4 (docs/upgrade.html).
"""

from __future__ import annotations

from typing import Final

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
