"""Settings with other names in librdkafka, kafka-python and aiokafka, for errors about them.

Kafka: none; the names are those of librdkafka's CONFIGURATION.md; none; the names are those of
KafkaConsumer, KafkaProducer and AIOKafkaConsumer.
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


_NEGOTIATED: Final = "versions are negotiated with each broker: leave it out"
_ONE_FILE: Final = "here it is 'ssl_keystore_location', one file with key and certificates"

_ADVICE: Final = {
    "api_version": _NEGOTIATED,
    "api_version_auto_timeout_ms": _NEGOTIATED,
    "bootstrap_topics_filter": "metadata of the topics in use are requested: leave it out",
    "consumer_timeout_ms": "iteration has no end: call poll(timeout=), which returns a list",
    "default_offset_commit_callback": "use the result of commit_nowait()",
    "kafka_client": "the client is a part of producer and consumer: leave it out",
    "legacy_iterator": "leave it out",
    "loop": "the running loop is used: leave it out",
    "max_batch_size": "here it is 'batch_size'",
    "metric_group_prefix": "call metrics()",
    "metrics_enabled": "call metrics()",
    "rebalance_timeout_ms": "here it is 'max_poll_interval_ms'",
    "sasl_kerberos_domain_name": "the host name of the broker is used: leave it out",
    "sasl_oauth_token_provider": "here it is 'sasl_oauthbearer_token_endpoint_url' or a file",
    "sasl_plain_password": "here it is 'sasl_password'",
    "sasl_plain_username": "here it is 'sasl_username'",
    "selector": "leave it out",
    "sock_chunk_buffer_count": "leave it out",
    "sock_chunk_bytes": "leave it out",
    "socket_options": "the operating system chooses them: leave it out",
    "socks5_proxy": "proxies are not supported",
    "ssl_cafile": "here it is 'ssl_truststore_location'",
    "ssl_certfile": _ONE_FILE,
    "ssl_check_hostname": "here it is 'ssl_endpoint_identification_algorithm': 'https' or ''",
    "ssl_ciphers": "here it is 'ssl_cipher_suites'",
    "ssl_crlfile": "give an SSLContext with the list as 'ssl_context'",
    "ssl_keyfile": _ONE_FILE,
    "ssl_password": "here it is 'ssl_key_password'",
}


def python_client_hint(name: str) -> str | None:
    """Return the advice on a setting of kafka-python or aiokafka; None for any other name."""
    return _ADVICE.get(name)
