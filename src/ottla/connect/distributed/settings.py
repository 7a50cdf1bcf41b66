"""The settings of distributed workers.

Kafka: org.apache.kafka.connect.runtime.distributed.DistributedConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.config.checks import at_least, one_of, one_of_any_case
from ottla.config.definition import HIGH, LOW, MEDIUM, REQUIRED, ConfigDefinitions, Importance, Type
from ottla.connect.distributed.signing import DIGESTS
from ottla.connect.settings import STANDALONE

if TYPE_CHECKING:
    from ottla.config.checks import Check

TOPICS: Final = {
    "config": "connector configurations",
    "offset": "source connector offsets",
    "status": "connector and task statuses",
}
"""The internal topics by the prefix of their settings, and what they have."""


def _distributed() -> ConfigDefinitions:
    algorithm = one_of(*DIGESTS)
    hour_ms = 3_600_000
    rows: list[tuple[str, Type, Any, Importance, str, Check | None]] = [
        ("group.id", Type.STRING, REQUIRED, HIGH, "The name of the group of workers.", None),
        ("session.timeout.ms", Type.INT, 10_000, HIGH, "Time until a silent worker is out.", None),
        ("heartbeat.interval.ms", Type.INT, 3_000, HIGH, "Time between heartbeats.", None),
        (
            "rebalance.timeout.ms", Type.INT, 60_000, HIGH,
            "Time for workers to join a rebalance.", None,
        ),
        ("worker.sync.timeout.ms", Type.INT, 3_000, MEDIUM, "Time to read configurations.", None),
        (
            "worker.unsync.backoff.ms", Type.INT, 300_000, MEDIUM,
            "Time outside the group after configurations could not be read.", None,
        ),
        (
            "scheduled.rebalance.max.delay.ms", Type.INT, 300_000, LOW,
            "Time that the work of a worker that left waits for its return.", at_least(0),
        ),
        (
            "connect.protocol", Type.STRING, "sessioned", LOW, "The group protocol.",
            one_of_any_case("EAGER", "COMPATIBLE", "SESSIONED"),
        ),
        (
            "exactly.once.source.support", Type.STRING, "disabled", HIGH,
            "Exactly-once sources, which are not there yet.", one_of("disabled"),
        ),
        (
            "inter.worker.key.generation.algorithm", Type.STRING, "HmacSHA256", LOW,
            "The algorithm of keys.", algorithm,
        ),
        (
            "inter.worker.key.ttl.ms", Type.INT, hour_ms, LOW,
            "Time until a new key is made.", at_least(0),
        ),
        (
            "inter.worker.signature.algorithm", Type.STRING, "HmacSHA256", LOW,
            "The algorithm of signatures.", algorithm,
        ),
        (
            "inter.worker.verification.algorithms", Type.LIST, ("HmacSHA256",), LOW,
            "The algorithms of signatures that are accepted.", None,
        ),
    ]  # fmt: skip
    for kind, purpose in TOPICS.items():
        name = f"{kind}.storage.topic"
        rows.append((name, Type.STRING, REQUIRED, HIGH, f"The topic of {purpose}.", None))
        name = f"{kind}.storage.replication.factor"
        rows.append((name, Type.SHORT, 3, LOW, "Its replicas, -1 for the broker's default.", None))
    for kind, count in (("offset", 25), ("status", 5)):
        name = f"{kind}.storage.partitions"
        rows.append((name, Type.INT, count, LOW, "Its partitions, -1 for the broker's.", None))
    definitions = ConfigDefinitions()
    shared = STANDALONE.keys.items()
    definitions.keys.update({k: it for k, it in shared if k != "offset.storage.file.filename"})
    for name, type_, default, importance, doc, check in rows:
        definitions.define(name, type_, default, doc, check, importance=importance)
    return definitions


DISTRIBUTED: Final = _distributed()
