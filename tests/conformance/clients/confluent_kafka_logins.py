"""librdkafka logs in; `logins.py` says what is read and what is said."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.conformance.clients.login_lines import Login, play

_CERTIFICATE = "alert certificate required"


def _settings(login: Login, refusals: list[Any]) -> dict[str, Any]:
    def on_error(error: Any) -> None:
        if error.name() == "_AUTHENTICATION" or _CERTIFICATE in error.str():
            refusals.append(error)

    made: dict[str, Any] = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": login.protocol,
        "error_cb": on_error,
        "log_level": 0,
        "fetch.wait.max.ms": 20,
    }
    if login.protocol.startswith("SASL"):
        made["sasl.mechanism"] = login.mechanism
        if login.mechanism == "OAUTHBEARER":
            made["oauth_cb"] = lambda _config: (login.token_text, time.time() + 3600)
        else:
            made |= {"sasl.username": login.user, "sasl.password": login.password}
    if login.has_tls:
        made["ssl.ca.location"] = login.authority
    if login.own:
        made["ssl.certificate.location"], made["ssl.key.location"] = login.own
    return made


def round_trip(login: Login, topic: str) -> str:
    """Produce a record and read it."""
    refusals: list[Any] = []
    stored: list[int] = []
    producer = Producer(_settings(login, refusals))
    producer.produce(
        topic,
        login.name.encode(),
        partition=0,
        on_delivery=lambda _error, message: stored.append(message.offset() or 0),
    )
    while not stored and not refusals:
        producer.poll(0.1)
    if refusals:
        producer.purge()
        producer.poll(0)
        raise KafkaException(refusals[0])
    consumer = Consumer({**_settings(login, refusals), "group.id": "logins"})
    consumer.assign([TopicPartition(topic, 0, stored[0])])
    message: Any = consumer.poll(10)
    consumer.close()
    return str(message.value().decode())


if __name__ == "__main__":
    play(round_trip, logger="confluent_kafka")
