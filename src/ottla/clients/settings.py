"""What a client was configured with: Kafka's names, checked, with defaults.

Kafka: org.apache.kafka.clients.{CommonClientConfigs, producer.ProducerConfig,
consumer.ConsumerConfig, admin.AdminClientConfig}.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SENSITIVE_WORDS = ("password", "jaas", "secret", "token", "key.pem", "keystore.key")


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError("must be a whole number")  # noqa: TRY004 - one error type for the caller
    return int(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    raise ValueError("must be true or false")


def _text(value: Any) -> str:
    return str(value)


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return tuple(str(part) for part in value)


def _acks(value: Any) -> int:
    number = -1 if str(value).lower() == "all" else int(value)
    if number not in (-1, 0, 1):
        raise ValueError("must be all, 0 or 1")
    return number


def _one_of(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        text = str(value)
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return check


def _anything(value: Any) -> Any:
    return value


Setting = tuple[Any, Any]  # (reader, default)

COMMON: dict[str, Setting] = {
    "bootstrap.servers": (_words, ()),
    "client.id": (_text, ""),
    "client.rack": (_text, ""),
    "client.dns.lookup": (_text, "use_all_dns_ips"),
    "metadata.max.age.ms": (_integer, 300_000),
    "request.timeout.ms": (_integer, 30_000),
    "connections.max.idle.ms": (_integer, 540_000),
    "reconnect.backoff.ms": (_integer, 50),
    "reconnect.backoff.max.ms": (_integer, 1_000),
    "retry.backoff.ms": (_integer, 100),
    "retry.backoff.max.ms": (_integer, 1_000),
    "send.buffer.bytes": (_integer, -1),
    "receive.buffer.bytes": (_integer, -1),
    "socket.connection.setup.timeout.ms": (_integer, 10_000),
    "metadata.recovery.strategy": (_one_of("none", "rebootstrap"), "rebootstrap"),
    "metadata.recovery.rebootstrap.trigger.ms": (_integer, 300_000),
    "security.protocol": (
        _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "PLAINTEXT",
    ),
    "sasl.mechanism": (_text, "GSSAPI"),
    "sasl.jaas.config": (_text_or_none, None),
    "sasl.username": (_text_or_none, None),
    "sasl.password": (_text_or_none, None),
    "ssl.truststore.location": (_text_or_none, None),
    "ssl.truststore.certificates": (_text_or_none, None),
    "ssl.truststore.type": (_text, "PEM"),
    "ssl.keystore.location": (_text_or_none, None),
    "ssl.keystore.type": (_text, "PEM"),
    "ssl.keystore.password": (_text_or_none, None),
    "ssl.key.password": (_text_or_none, None),
    "ssl.endpoint.identification.algorithm": (_text_or_none, "https"),
    "ssl.context": (_anything, None),
}

PRODUCER: dict[str, Setting] = {
    **COMMON,
    "acks": (_acks, -1),
    "enable.idempotence": (_boolean, True),
    "batch.size": (_integer, 16_384),
    "linger.ms": (_integer, 5),
    "buffer.memory": (_integer, 33_554_432),
    "max.block.ms": (_integer, 60_000),
    "max.request.size": (_integer, 1_048_576),
    "max.in.flight.requests.per.connection": (_integer, 5),
    "retries": (_integer, 2_147_483_647),
    "delivery.timeout.ms": (_integer, 120_000),
    "compression.type": (_one_of("none", "gzip", "snappy", "lz4", "zstd"), "none"),
    "compression.gzip.level": (_integer, -1),
    "compression.lz4.level": (_integer, 9),
    "compression.zstd.level": (_integer, 3),
    "partitioner.class": (_anything, None),
    "partitioner.ignore.keys": (_boolean, False),
    "partitioner.adaptive.partitioning.enable": (_boolean, True),
    "partitioner.availability.timeout.ms": (_integer, 0),
    "metadata.max.idle.ms": (_integer, 300_000),
    "transactional.id": (_text_or_none, None),
    "transaction.timeout.ms": (_integer, 60_000),
    "transaction.two.phase.commit.enable": (_boolean, False),
    "key.serializer": (_anything, None),
    "value.serializer": (_anything, None),
}

CONSUMER: dict[str, Setting] = {
    **COMMON,
    "group.id": (_text_or_none, None),
    "group.instance.id": (_text_or_none, None),
    "group.protocol": (_one_of("classic", "consumer"), "classic"),
    "group.remote.assignor": (_text_or_none, None),
    "session.timeout.ms": (_integer, 45_000),
    "heartbeat.interval.ms": (_integer, 3_000),
    "max.poll.interval.ms": (_integer, 300_000),
    "max.poll.records": (_integer, 500),
    "partition.assignment.strategy": (_words, ("range", "cooperative-sticky")),
    "auto.offset.reset": (_text, "latest"),
    "enable.auto.commit": (_boolean, True),
    "auto.commit.interval.ms": (_integer, 5_000),
    "fetch.min.bytes": (_integer, 1),
    "fetch.max.bytes": (_integer, 52_428_800),
    "fetch.max.wait.ms": (_integer, 500),
    "max.partition.fetch.bytes": (_integer, 1_048_576),
    "check.crcs": (_boolean, True),
    "isolation.level": (_one_of("read_uncommitted", "read_committed"), "read_uncommitted"),
    "default.api.timeout.ms": (_integer, 60_000),
    "allow.auto.create.topics": (_boolean, True),
    "exclude.internal.topics": (_boolean, True),
    "internal.leave.group.on.close": (_boolean, True),
    "key.deserializer": (_anything, None),
    "value.deserializer": (_anything, None),
}

ADMIN: dict[str, Setting] = {
    **COMMON,
    "bootstrap.controllers": (_words, ()),
    "default.api.timeout.ms": (_integer, 60_000),
    "retries": (_integer, 2_147_483_647),
}

AT_LEAST_ONE = frozenset(
    {
        "batch.size",
        "delivery.timeout.ms",
        "max.in.flight.requests.per.connection",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "request.timeout.ms",
        "session.timeout.ms",
    }
)
JAVA_CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


class Settings:
    """The checked settings of one client; an attribute is the dotted name with underscores."""

    client_id: str
    bootstrap_servers: tuple[str, ...]

    def __init__(self, table: Mapping[str, Setting], values: Mapping[str, Any]) -> None:
        self.given = frozenset(values)
        for name, (_, default) in table.items():
            setattr(self, name.replace(".", "_"), values.get(name, default))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def __repr__(self) -> str:
        shown = {
            name: "[hidden]" if is_sensitive(name) else getattr(self, name.replace(".", "_"))
            for name in sorted(self.given)
        }
        return f"Settings({shown})"


def is_sensitive(name: str) -> bool:
    """Whether a setting's value must never be shown."""
    return any(word in name for word in SENSITIVE_WORDS)


def read_settings(
    table: Mapping[str, Setting], mapping: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> Settings:
    """Merge a mapping with dotted names and keyword arguments with underscores.

    Keywords win. Raises KafkaError(INVALID_CONFIG) naming every bad entry at once, an unknown
    name together with the nearest known one.
    """
    by_keyword = {name.replace(".", "_"): name for name in table}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for given, value in {**dict(mapping or {}), **dict(keywords)}.items():
        name = by_keyword.get(given.replace(".", "_"))
        if name is None:
            problems.append(_unknown(given, table))
            continue
        try:
            values[name] = _read_value(name, value, table[name][0])
        except (TypeError, ValueError) as error:
            problems.append(f"{name}: {_shown(name, value)} {_reason(error)}")
    if problems:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    return Settings(table, values)


def _read_value(name: str, value: Any, reader: Callable[[Any], Any]) -> Any:
    result = reader(value)
    if name in AT_LEAST_ONE and result < 1:
        raise ValueError("must be at least 1")
    if name == "partition.assignment.strategy":
        return tuple(JAVA_CLASSES.get(word.rpartition(".")[2], word) for word in result)
    return result


def _shown(name: str, value: Any) -> str:
    return "the value" if is_sensitive(name) else repr(value)


def _reason(error: Exception) -> str:
    text = str(error)
    return text if text.startswith("must") else "is not a valid value"


def _unknown(given: str, table: Mapping[str, Setting]) -> str:
    dotted = given.replace("_", ".")
    near = get_close_matches(dotted, list(table), n=1, cutoff=0.6)
    if not near:
        return f"unknown setting {given!r}"
    spelled = near[0] if "." in given else near[0].replace(".", "_")
    return f"unknown setting {given!r}; did you mean {spelled!r}?"
