"""aiokafka logs in; `logins.py` says what is read and what is said."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider

from tests.conformance.clients.login_lines import Login, play


class _Token(AbstractTokenProvider):  # type: ignore[misc] # the library has no types
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        """Return the token."""
        return self._text


def _settings(login: Login) -> dict[str, Any]:
    made: dict[str, Any] = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
    }
    if login.protocol.startswith("SASL"):
        made["sasl_mechanism"] = login.mechanism
        if login.mechanism == "OAUTHBEARER":
            made["sasl_oauth_token_provider"] = _Token(login.token_text)
        else:
            made |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    if login.has_tls:
        context = made["ssl_context"] = ssl.create_default_context(cafile=login.authority)
        if login.own:
            context.load_cert_chain(*login.own)
    return made


async def _round_trip(login: Login, topic: str) -> str:
    async with AIOKafkaProducer(**_settings(login)) as producer:
        stored = await producer.send_and_wait(topic, login.name.encode(), partition=0)
    async with AIOKafkaConsumer(**_settings(login)) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, stored.offset)
        found = await asyncio.wait_for(consumer.getone(), 60)
    return str(found.value.decode())


def round_trip(login: Login, topic: str) -> str:
    """Produce a record and read it."""
    return asyncio.run(_round_trip(login, topic))


if __name__ == "__main__":
    play(round_trip, logger="aiokafka")
