"""Any sequence of frames at a login: nothing is served before it, and nothing after a failure."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.network.limits import PendingLogins
from ottla.protocol import frames
from ottla.protocol.apis.api_versions import ApiVersionsRequest
from ottla.protocol.apis.metadata import MetadataRequest
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.apis.sasl_handshake import SaslHandshakeRequest
from ottla.security.principal import ANONYMOUS
from ottla.security.sasl.plain import PLAIN, PlainServer, users_of
from ottla.security.sasl.scram import ScramCredential, ScramServer
from ottla.security.sasl.server import SaslServer
from ottla.server.requests.login import ConnectionLogin, LoginPolicy, SaslLogins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.schema import Request

SHA = "SCRAM-SHA-256"
SALT, ITERATIONS = b"salt", 4096
SALTED = hashlib.pbkdf2_hmac("sha256", b"secret", SALT, ITERATIONS)
STORED = hashlib.sha256(hmac.digest(SALTED, b"Client Key", "sha256")).digest()
CREDENTIAL = ScramCredential(SALT, STORED, hmac.digest(SALTED, b"Server Key", "sha256"), ITERATIONS)


class Hands:
    """A clock that is set."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms

    monotonic_ms = now_ms


class Loop:
    """Runs what is due at once."""

    def call_later(self, delay_s: float, call: Any, *arguments: Any) -> Any:
        if delay_s < 1:  # the late answer, not the limit of time
            call(*arguments)
        return self

    def cancel(self) -> None:
        pass


class Peer:
    """A connection, and the listener behind it, that note what they are told."""

    peer_host, listener_name, max_frame_bytes = "192.0.2.1", "LOGIN", 1 << 20

    def __init__(self) -> None:
        self.principal: Any = ANONYMOUS
        self.is_closed = False
        self.handler: Any = None
        self.served: list[tuple[int, Any]] = []
        self.answers = 0

    def serve(self, handler: Any, _max_frame_bytes: int) -> None:
        self.handler = handler

    def respond(self, _items: Any) -> None:
        self.answers += 1

    def close(self) -> None:
        self.is_closed = True

    finish = close

    def handle_frame(self, _connection: Any, frame: memoryview) -> None:
        self.served.append((int.from_bytes(frame[:2], "big"), self.principal))

    def connection_closed(self, _connection: Any) -> None:
        pass


def frame(request: Request, version: int) -> bytes:
    """Return a request's bytes without their size."""
    items = frames.encode_request(request, version, 1, "c")
    return b"".join(bytes(one) for one in items)[4:]  # type: ignore[arg-type] # no file slices


def sent(version: int, data: bytes) -> bytes:
    """Return a step of a mechanism."""
    return frame(SaslAuthenticateRequest(auth_bytes=data), version)


VERSIONS = frame(ApiVersionsRequest(), 3)
STEPS: dict[str, bytes] = {
    "versions": VERSIONS,
    "newer-versions": VERSIONS[:2] + b"\0\x63" + VERSIONS[4:],
    "metadata": frame(MetadataRequest(topics=None), 9),
    "plain": frame(SaslHandshakeRequest(mechanism=PLAIN), 1),
    "plain-raw": frame(SaslHandshakeRequest(mechanism=PLAIN), 0),
    "scram": frame(SaslHandshakeRequest(mechanism=SHA), 1),
    "other": frame(SaslHandshakeRequest(mechanism="GSSAPI"), 1),
    "right": sent(2, b"\0alice\0secret"),
    "wrong": sent(2, b"\0alice\0other"),
    "bare-right": b"\0alice\0secret",
    "bare-wrong": b"\0alice\0other",
    "scram-first": sent(2, b"n,,n=alice,r=abc"),
    "scram-last": sent(2, b"c=biws,r=abcxyz,p=" + base64.b64encode(bytes(32))),
    "garbage": b"\xff" * 9,
    "empty": b"",
}
RIGHT = {"right", "bare-right"}


def play(actions: Sequence[str | bytes], lifetime_ms: int) -> Peer:
    """Send frames until the connection ends; check after each what was served to whom."""
    is_valid = users_of({"user_alice": "secret"})
    mechanisms: Any = {
        PLAIN: lambda: PlainServer(is_valid),
        SHA: lambda: ScramServer(SHA, lambda *_: CREDENTIAL, nonce="xyz", secret=b"s"),
    }
    clock, peer = Hands(), Peer()
    policy = LoginPolicy(
        lambda previous: SaslServer(
            mechanisms, max_session_ms=lambda _: lifetime_ms, previous=previous
        ),
        max_receive_bytes=1000,
        failure_delay_ms=0,
    )
    loop: Any = Loop()
    logins = SaslLogins(
        lambda: policy,
        loop=loop,
        clock=clock,
        pending=PendingLogins(10),
        named=lambda _connection, _mechanism: None,
        run=lambda job, done: done(job(), None),
    )
    ConnectionLogin(logins, peer, peer).begin()  # type: ignore[arg-type]
    known: set[str] = set()
    for action in actions:
        if peer.is_closed:
            break
        clock.ms += 600
        data = STEPS[action] if isinstance(action, str) else action
        known |= {action} & RIGHT if isinstance(action, str) else set()
        peer.handler.handle_frame(peer, memoryview(data))
        assert peer.principal is ANONYMOUS or known, actions
    for key, principal in peer.served:
        assert key == ApiVersionsRequest.message_key or principal is not ANONYMOUS, actions
    return peer


@settings(max_examples=150, deadline=None)
@given(
    actions=st.lists(st.one_of(st.sampled_from(sorted(STEPS)), st.binary(max_size=20)), max_size=9),
    lifetime_ms=st.sampled_from([0, 1000, 10_000]),
)
def test_nothing_is_served_before_a_login(actions: list[str | bytes], lifetime_ms: int) -> None:
    """Whatever comes, in whatever order, with sessions that end and without."""
    play(actions, lifetime_ms)


def test_the_ways_to_a_login() -> None:
    """With frames and with bare messages, after ApiVersions or without; a renewed one, too."""
    for actions in (
        ["versions", "plain", "right", "metadata"],
        ["newer-versions", "newer-versions", "versions", "plain", "right", "metadata"],
        ["plain", "right", "metadata"],
        ["plain-raw", "bare-right", "metadata"],
    ):
        peer = play(actions, 0)
        assert not peer.is_closed
        assert str(peer.principal) == "User:alice"
        assert peer.served[-1][0] == MetadataRequest.message_key
    renewed = ["plain", "right", "metadata", "plain", "right", "metadata"]
    assert len(play(renewed, 2500).served) == 2
    late = ["plain", "right", "metadata", "metadata", "metadata"]
    assert len(play(late, 1000).served) == 1
    assert play(late, 1000).is_closed


def test_a_failure_ends_the_connection() -> None:
    """And a renewed login that fails does, too."""
    for actions in (
        ["plain", "wrong"],
        ["plain-raw", "bare-wrong"],
        ["other"],
        ["scram", "scram-first", "scram-last"],
        ["plain", "right", "metadata", "plain", "wrong"],
        ["plain", "right", "metadata", "scram", "scram-first"],
        ["metadata"],
        ["versions", "versions"],
        ["versions", "newer-versions"],
    ):
        assert play(actions, 10_000).is_closed, actions


def test_a_repeated_login_serves_nothing_until_it_is_complete() -> None:
    """One that begins and never ends does not prolong a session; nor is one that failed served."""
    for begun in (
        ["plain"],
        ["scram"],
        ["scram", "scram-first"],
        ["plain", "wrong"],
        ["plain-raw"],
    ):
        peer = play(["plain", "right", "metadata", *begun, "metadata"], 10_000)
        assert len(peer.served) == 1, begun
        assert peer.is_closed, begun
