"""Settings with other names in librdkafka than in Kafka, for errors about unknown names.

Kafka: none; the names are those of librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from typing import Final

DOCUMENT: Final = "docs/migration.md"
RENAMED: Final = {
    "batch.num.messages": "batch.size",
    "broker.address.ttl": "metadata.max.age.ms",
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "partitioner": "partitioner.class",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "receive.message.max.bytes": "fetch.max.bytes",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
REPLACED: Final = {
    "delivery.report.only.error": "pass on_delivery= to send",
    "debug": 'set Python\'s logger "ottla.clients" to DEBUG',
    "enable.auto.offset.store": "commit the offsets that were processed, commit({partition: n})",
    "enable.partition.eof": "compare position() with end_offsets()",
    "error_cb": "errors are exceptions, outages are log lines of ottla.clients",
    "log_level": 'set the level of Python\'s logger "ottla.clients"',
    "logger": 'lines go to Python\'s logger "ottla.clients"',
    "on_delivery": "pass on_delivery= to send",
    "queued.max.messages.kbytes": "records are fetched ahead by max.partition.fetch.bytes",
    "queued.min.messages": "records are fetched ahead by max.partition.fetch.bytes",
    "socket.keepalive.enable": "connections are opened again when they are lost",
    "statistics.interval.ms": "call metrics()",
    "stats_cb": "call metrics()",
}


def librdkafka_hint(name: str) -> str | None:
    """Return the advice on a setting of librdkafka; None for any other name."""
    ours = RENAMED.get(name)
    if ours is not None:
        return f"here it is {ours!r}"
    return REPLACED.get(name)
