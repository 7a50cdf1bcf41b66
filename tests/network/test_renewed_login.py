"""A channel logs in again before its session ends (KIP-368)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.network.request_channel import Channel, ChannelState
from ottla.protocol import frames
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.api_versions import ApiVersionsResponse
from ottla.protocol.apis.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.apis.sasl_handshake import SaslHandshakeResponse
from ottla.security.sasl.client import make_mechanism_login

if TYPE_CHECKING:
    from ottla.protocol.schema import Response

LIFETIME_MS = 1000
VERSIONS = {ApiKey.API_VERSIONS: 3, ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}


class Broker:
    """Answers the requests of a channel one by one."""

    def __init__(self, lifetime_ms: int = LIFETIME_MS) -> None:
        self.lifetime_ms = lifetime_ms
        self.asked: list[str] = []
        self.refuses = False
        self.channel = Channel("c", login=lambda: make_mechanism_login("PLAIN", "u", "p", ""))  # type: ignore[arg-type, return-value]

    def turn(self, now_ms: int) -> None:
        """Answer all that was sent."""
        while self.channel.outgoing:
            data = b"".join(bytes(one) for one in self.channel.outgoing)  # type: ignore[arg-type]
            self.channel.outgoing.clear()
            while data:
                size = int.from_bytes(data[:4], "big")
                frame, data = data[4 : 4 + size], data[4 + size :]
                self._answer(frame, now_ms)

    def _answer(self, frame: bytes, now_ms: int) -> None:
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
        self.asked.append(ApiKey(key).name)
        items = frames.encode_response(
            int.from_bytes(frame[4:8], "big"), key, version, self._response(key)
        )
        whole = b"".join(bytes(one) for one in items)  # type: ignore[arg-type]
        self.channel.receive(memoryview(whole)[4:], now_ms)

    def _response(self, key: int) -> Response:
        if key == ApiKey.API_VERSIONS:
            version = ApiVersionsResponse.ApiVersion
            served = {**VERSIONS, ApiKey.METADATA: 9}
            listed = [
                version(api_key=one, min_version=0, max_version=most)
                for one, most in served.items()
            ]
            return ApiVersionsResponse(api_keys=listed)
        if key == ApiKey.SASL_HANDSHAKE:
            return SaslHandshakeResponse(mechanisms=["PLAIN"])
        if key == ApiKey.SASL_AUTHENTICATE:
            code = int(ErrorCode.SASL_AUTHENTICATION_FAILED) if self.refuses else 0
            return SaslAuthenticateResponse(
                error_code=code,
                error_message=None,
                auth_bytes=b"",
                session_lifetime_ms=self.lifetime_ms,
            )
        return MetadataResponse(brokers=[], topics=[])

    def ask(self, now_ms: int) -> Any:
        """Send a request and let it be answered."""
        pending = self.channel.submit(MetadataRequest(topics=[]), now_ms=now_ms, timeout_ms=100)
        self.turn(now_ms)
        return pending


LOGIN = ["SASL_HANDSHAKE", "SASL_AUTHENTICATE"]


def test_the_next_request_waits_for_a_new_login() -> None:
    """After 85 % of the session, on the same connection, and then again."""
    broker = Broker()
    broker.channel.connected(0)
    broker.turn(0)
    assert broker.asked == ["API_VERSIONS", *LOGIN]
    for now_ms in (0, 849, 850, 1600, 1700):
        broker.asked.clear()
        assert broker.ask(now_ms).error is None
        renews = now_ms in {850, 1700}
        assert broker.asked == [*(LOGIN if renews else []), "METADATA"], now_ms
    assert broker.channel.ready


def test_a_session_without_an_end_is_not_renewed() -> None:
    """As most listeners have it."""
    broker = Broker(0)
    broker.channel.connected(0)
    broker.turn(0)
    broker.asked.clear()
    broker.ask(10**9)
    assert broker.asked == ["METADATA"]


def test_a_refused_login_ends_the_connection() -> None:
    """The request fails with the refusal."""
    broker = Broker()
    broker.channel.connected(0)
    broker.turn(0)
    broker.refuses = True
    pending = broker.ask(900)
    assert broker.channel.state is ChannelState.CLOSED
    assert isinstance(pending.error, KafkaError)
    assert pending.error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
