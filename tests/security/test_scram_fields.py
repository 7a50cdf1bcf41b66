"""Each field of SCRAM's messages, changed in turn: a node and a client refuse, and none crashes."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.apis.sasl_handshake import SaslHandshakeResponse
from ottla.security.sasl.client import make_mechanism_login
from ottla.security.sasl.scram import ScramCredential, ScramServer
from ottla.security.sasl.server import SaslServer
from tests.server.security.scram_fields import (
    FINAL,
    FIRST,
    MECHANISM,
    NONCE,
    USER,
    final_outcome,
    first_outcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ITERATIONS = 4096
SALTED = hashlib.pbkdf2_hmac("sha256", USER.encode(), b"salt", ITERATIONS)
CREDENTIAL = ScramCredential(
    b"salt",
    hashlib.sha256(hmac.digest(SALTED, b"Client Key", "sha256")).digest(),
    hmac.digest(SALTED, b"Server Key", "sha256"),
    ITERATIONS,
)


def server() -> SaslServer:
    """Begin a login on a node."""

    def find(user: str, _is_token: bool) -> ScramCredential | None:  # noqa: FBT001 - an interface
        return CREDENTIAL if user == USER else None

    made = SaslServer(
        {MECHANISM: lambda: ScramServer(MECHANISM, find, nonce="server", secret=b"s")},
        max_session_ms=lambda _mechanism: 0,
    )
    made.handshake(MECHANISM, 1)
    return made


def asking() -> Callable[[bytes], Any]:
    """Return what sends a message to a new login."""
    login = server()

    def ask(token: bytes) -> tuple[int, str | None, bytes]:
        answer = login.authenticate(token, lambda: 0)
        return answer.error_code, answer.error_message, bytes(answer.auth_bytes)

    return ask


@pytest.mark.parametrize("message", FIRST)
def test_a_first_message(message: str) -> None:
    """Binding, authorization id, name, nonce, extensions."""
    assert first_outcome(asking(), message) == FIRST[message]


@pytest.mark.parametrize("change", FINAL)
def test_a_final_message(change: tuple[str, str]) -> None:
    """Binding, nonce (CVE-2024-56128), proof, extensions."""
    assert final_outcome(asking(), *change) == FINAL[change]


def client_meets(first: Callable[[str], bytes], final: Callable[[bytes], bytes]) -> str:
    """Let a client talk to a node whose messages are changed; return how its login ends."""
    node = server()
    login = make_mechanism_login(MECHANISM, USER, USER, NONCE)
    assert login is not None
    login.next_request(None)
    request: Any = login.next_request(SaslHandshakeResponse(mechanisms=[MECHANISM]))
    change: Any = first
    try:
        while request is not None:
            answer = bytes(node.authenticate(bytes(request.auth_bytes), lambda: 0).auth_bytes)
            changed = change(answer.decode()) if change is first else change(answer)
            change = final
            request = login.next_request(
                SaslAuthenticateResponse(error_message=None, auth_bytes=changed)
            )
    except KafkaError as error:
        return "refused" if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED else str(error)
    return "in"


def same(answer: bytes) -> bytes:
    """Return the node's message."""
    return answer


SALT = base64.b64encode(b"salt").decode()


@pytest.mark.parametrize(
    ("message", "ends"),
    [
        (f"r={NONCE}server,s={SALT},i=4096", "in"),
        (f"r={NONCE}server,s={SALT},i=4096,x=1", "refused"),
        (f"r={NONCE}other,s={SALT},i=4096", "refused"),
        (f"r=other,s={SALT},i=4096", "refused"),
        (f"r=,s={SALT},i=4096", "refused"),
        (f"s={SALT},i=4096", "refused"),
        (f"r={NONCE}server,i=4096", "refused"),
        (f"r={NONCE}server,s=,i=4096", "refused"),
        (f"r={NONCE}server,s=%,i=4096", "refused"),
        (f"r={NONCE}server,s=c2FsdA,i=4096", "refused"),
        (f"r={NONCE}server,s=b3RoZXI=,i=4096", "refused"),
        (f"r={NONCE}server,s={SALT}", "refused"),
        (f"r={NONCE}server,s={SALT},i=", "refused"),
        (f"r={NONCE}server,s={SALT},i=4095", "refused"),
        (f"r={NONCE}server,s={SALT},i=4097", "refused"),
        (f"r={NONCE}server,s={SALT},i=many", "refused"),
        (f"r={NONCE}server,s={SALT},i=-4096", "refused"),
        (f"r={NONCE}server,s={SALT},i=1000001", "refused"),
        (f"r={NONCE}server,s={SALT},i={'9' * 5000}", "refused"),
        (f"m=1,r={NONCE}server,s={SALT},i=4096", "refused"),
        (f"r={NONCE}server,r={NONCE}server,s={SALT},i=4096", "refused"),
        ("e=other-error", "refused"),
        ("", "refused"),
        ("\udcff", "refused"),
    ],
)
def test_the_nodes_first_message(message: str, ends: str) -> None:
    """Nonce, salt, iterations: a client takes only the node's own, and is never kept busy."""
    encoded = message.encode(errors="surrogateescape")
    assert client_meets(lambda _given: encoded, same) == ends


@pytest.mark.parametrize(
    "change",
    [
        lambda given: b"v=" + base64.b64encode(bytes(32)),
        lambda given: given[2:],
        lambda given: given + b",x=1",
        lambda given: given.lower(),
        lambda given: b"e=invalid-proof",
        lambda given: b"v=",
        lambda given: b"v=\xff",
        lambda given: b"",
    ],
)
def test_the_nodes_last_message(change: Callable[[bytes], bytes]) -> None:
    """A signature that only a node makes that knows the password."""
    assert client_meets(str.encode, same) == "in"
    assert client_meets(str.encode, change) == "refused"


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_a_client_takes_no_other_bytes(first: bytes, final: bytes) -> None:
    """Whatever a node sends, the login is refused and nothing else is raised."""
    assert client_meets(lambda _given: first, same) == "refused"
    assert client_meets(str.encode, lambda _given: final) == "refused"


def test_a_credential_shows_no_key() -> None:
    """Who knows the server key can pretend to be the broker."""
    shown = repr(ScramCredential(b"salt", b"stored", b"server", 4096))
    assert "server" not in shown
    assert "stored" not in shown
