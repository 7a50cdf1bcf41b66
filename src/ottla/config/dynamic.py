"""Which settings of a broker can change while it runs, and for which brokers.

Kafka: org.apache.kafka.server.config.DynamicBrokerConfig, DynamicConfig.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.config.broker import BrokerConfig
from ottla.config.checks import at_least
from ottla.config.definition import MAX_LONG, ConfigTable, Key, Long, key
from ottla.config.own import OwnSettings
from ottla.config.problems import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class UpdateMode(Enum):
    """The scope of a dynamic change."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ThrottleSettings(ConfigTable):
    """Settings that exist only as dynamic ones: replication rates between brokers."""

    leader_replication_throttled_rate: Long = key(
        MAX_LONG, "Bytes a second that a leader sends to throttled followers.", at_least(0)
    )
    follower_replication_throttled_rate: Long = key(
        MAX_LONG, "Bytes a second that a throttled follower fetches.", at_least(0)
    )
    replica_alter_log_dirs_io_max_bytes_per_second: Long = key(
        MAX_LONG, "Bytes a second that moves between log directories may copy.", at_least(0)
    )


SECURITY: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

PER_BROKER: Final = SECURITY | {
    "cordoned.log.dirs",
    "listener.security.protocol.map",
    "listeners",
    "principal.builder.class",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.mechanism.inter.broker.protocol",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
}

CLUSTER_WIDE: Final = frozenset(
    {
        "background.threads",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "config.providers",
        "follower.fetch.last.tiered.offset.enable",
        "follower.replication.throttled.rate",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.threads",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "message.max.bytes",
        "metric.reporters",
        "min.insync.replicas",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "share.coordinator.cached.buffer.max.bytes",
        "transaction.partition.verification.enable",
        "unclean.leader.election.enable",
    }
)

ALL_DYNAMIC: Final = PER_BROKER | CLUSTER_WIDE

# Each of these may also be set for one listener, as listener.name.<name>.<setting>.
_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
_MECHANISM_SUFFIXES: Final = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
_LISTENER_CLUSTER_WIDE: Final = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)


def base_name(name: str) -> str:
    """Strip the prefix of a listener, and that of a SASL mechanism where the setting has one."""
    match = _LISTENER.fullmatch(name)
    if match is None:
        return name
    inner = match[1]
    return next((suffix for suffix in _MECHANISM_SUFFIXES if inner.endswith(suffix)), inner)


def update_mode(name: str) -> UpdateMode:
    """Return whether and in which scope a broker setting is dynamic."""
    base = base_name(name)
    if base in PER_BROKER or (base != name and base not in _LISTENER_CLUSTER_WIDE):
        return UpdateMode.PER_BROKER
    return UpdateMode.CLUSTER_WIDE if base in CLUSTER_WIDE else UpdateMode.READ_ONLY


def definition_of(name: str) -> Key | None:
    """Return the definition of a broker setting: dynamic-only, listener-prefixed, Ottla's own."""
    base = base_name(name)
    return (
        BrokerConfig.keys.get(base) or ThrottleSettings.keys.get(base) or OwnSettings.keys.get(name)
    )


def check_dynamic(changes: Mapping[str, str], *, one_broker: bool) -> list[ConfigProblem]:
    """Return the problems of dynamic changes, for one broker or for all brokers.

    An unknown name is accepted, as in Kafka (plug-ins have their own names). A known one must be
    dynamic, must not be per-broker when set for all brokers, and must have a valid value.
    """
    problems = list(_refused(_fixed(changes), "Cannot update these configs dynamically"))
    unprefixed = [name for name in changes if name in SECURITY]
    problems += _refused(
        unprefixed,
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
    )
    if not one_broker:
        single = [name for name in changes if update_mode(name) is UpdateMode.PER_BROKER]
        problems += _refused(
            single,
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    for name, value in changes.items():
        problems += _value_problems(name, value)
    return problems


def _fixed(changes: Iterable[str]) -> list[str]:
    known = BrokerConfig.keys.keys() | OwnSettings.keys.keys()
    return [name for name in changes if name in known and name not in ALL_DYNAMIC]


def _refused(names: list[str], sentence: str) -> Iterable[ConfigProblem]:
    if names:
        yield ConfigProblem(names[0], None, f"{sentence}: [{', '.join(sorted(names))}]")


def _value_problems(name: str, value: str) -> list[ConfigProblem]:
    table = BrokerConfig if base_name(name) in BrokerConfig.keys else ThrottleSettings
    reading = table.definitions.read({base_name(name): value})
    return [problem for problem in reading.problems if problem.name == base_name(name)]


def listener_problems(given: Mapping[str, str]) -> list[ConfigProblem]:
    """Return the invalid settings of single listeners; parsing a table does not check them."""
    return [
        problem._replace(name=name)
        for name, value in given.items()
        if base_name(name) != name
        for problem in _value_problems(name, value)
    ]
