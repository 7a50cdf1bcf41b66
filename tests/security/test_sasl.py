"""Logins as state machines: PLAIN, SCRAM, and the order of a login's messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.security.jaas import parse_jaas
from ottla.security.principal import Principal
from ottla.security.sasl.jwt import JwtClaims
from ottla.security.sasl.mechanism import AuthenticationFailed, InvalidToken
from ottla.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer, first_message
from ottla.security.sasl.plain import PlainServer, users_of
from ottla.security.sasl.scram import ScramCredential, ScramServer
from ottla.security.sasl.server import LoginState, SaslServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PASSWORD = b"secret"
SALT = b"0123456789abcdef01234567"
ITERATIONS = 4096
IS_VALID = users_of({"user_alice": "secret", "user_bob": "other", "username": "ignored"})


def plain(token: bytes) -> PlainServer:
    """Return a login after one message."""
    login = PlainServer(IS_VALID)
    login.evaluate(token)
    return login


def test_plain_takes_a_name_and_its_password() -> None:
    """The authorization id is empty or the user."""
    assert plain(b"\0alice\0secret").user == "alice"
    assert plain(b"bob\0bob\0other").is_complete


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0other",
        b"\0carol\0secret",
        b"\0alice\0",
        b"\0\0secret",
        b"bob\0alice\0secret",
        b"alice\0secret",
        b"\0alice\0secret\0",
        b"\xff\0\0",
        b"",
    ],
)
def test_plain_refuses_everything_else(token: bytes) -> None:
    """A wrong password, another authorization id, too many parts, bytes that are no text."""
    with pytest.raises(AuthenticationFailed):
        plain(token)


def test_plain_does_not_say_whether_a_user_exists() -> None:
    """An unknown user and a wrong password have the same answer."""
    texts = []
    for token in (b"\0alice\0x", b"\0unknown\0x"):
        with pytest.raises(AuthenticationFailed) as caught:
            plain(token)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def credential() -> ScramCredential:
    """Return what is stored of PASSWORD."""
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD, SALT, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return ScramCredential(
        SALT,
        hashlib.sha256(client_key).digest(),
        hmac.digest(salted, b"Server Key", "sha256"),
        ITERATIONS,
    )


def scram() -> ScramServer:
    """Return a login of the only user, alice."""
    return ScramServer(
        "SCRAM-SHA-256",
        lambda user, is_token: credential() if user == "alice" and not is_token else None,
        nonce="server",
        secret=b"node",
    )


def final_message(
    server_first: str,
    *,
    password: bytes = PASSWORD,
    change: Callable[[dict[str, str]], None] | None = None,
    first: str = "n=alice,r=client",
    signed_fields: Mapping[str, str] | None = None,
) -> bytes:
    """Return a client's final message, with single fields changed after the proof or before."""
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    sent = {"c": "biws", "r": fields["r"], **(signed_fields or {})}
    signed = f"{first},{server_first},c={sent['c']},r={sent['r']}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    sent["p"] = base64.b64encode(proof).decode()
    if change is not None:
        change(sent)
    return ",".join(f"{key}={value}" for key, value in sent.items()).encode()


def test_scram_proves_both_sides() -> None:
    """The server's last message is the signature that only its stored key makes."""
    login = scram()
    first = login.evaluate(b"n,,n=alice,r=client").decode()
    assert first.startswith("r=clientserver,s=")
    last = login.evaluate(final_message(first))
    signed = f"n=alice,r=client,{first},c=biws,r=clientserver".encode()
    expected = hmac.digest(credential().server_key, signed, "sha256")
    assert last == b"v=" + base64.b64encode(expected)
    assert login.is_complete
    assert login.user == "alice"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("r", "clientserver2"),
        ("r", "client"),
        ("r", ""),
        ("c", "eSws"),
        ("c", "=="),
        ("p", "AAAA"),
        ("p", base64.b64encode(bytes(32)).decode()),
        ("p", "%"),
        ("x", "1"),
    ],
)
def test_scram_refuses_each_changed_field(field: str, value: str) -> None:
    """The nonce (CVE-2024-56128), the binding, the proof, a field after the proof."""
    login = scram()
    first = login.evaluate(b"n,,n=alice,r=client").decode()
    with pytest.raises((AuthenticationFailed, InvalidToken)):
        login.evaluate(final_message(first, change=lambda sent: sent.update({field: value})))
    assert not login.is_complete


@pytest.mark.parametrize(
    ("field", "value"), [("r", "clientserver2"), ("r", "client"), ("c", "eSws")]
)
def test_scram_refuses_a_changed_field_that_is_signed(field: str, value: str) -> None:
    """Who knows the password proves another message: its nonce is not ours (CVE-2024-56128)."""
    login = scram()
    first = login.evaluate(b"n,,n=alice,r=client").decode()
    with pytest.raises((AuthenticationFailed, InvalidToken)):
        login.evaluate(final_message(first, signed_fields={field: value}))
    assert not login.is_complete


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=alice,r=client",
        b"p=tls-unique,,n=alice,r=client",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=,r=client",
        b"n,,r=client,n=alice",
        b"n,,n=al=2Xice,r=client",
        b"\xff",
    ],
)
def test_scram_refuses_other_first_messages(message: bytes) -> None:
    """A channel binding, a missing or empty field, an unknown escape, another order."""
    with pytest.raises(InvalidToken):
        scram().evaluate(message)


def test_scram_goes_on_with_an_unknown_user() -> None:
    """The salt is the same each time, and the proof fails as with a wrong password."""
    texts = set()
    for user, password in (("alice", b"wrong"), ("unknown", PASSWORD)):
        salts = set()
        for _ in range(2):
            login = scram()
            bare = f"n={user},r=client"
            first = login.evaluate(f"n,,{bare}".encode()).decode()
            salts.add(first)
            with pytest.raises(InvalidToken) as caught:
                login.evaluate(final_message(first, password=password, first=bare))
            texts.add(str(caught.value))
        assert len(salts) == 1
    assert len(texts) == 1


def sasl(previous: SaslServer | None = None, max_session_ms: int = 0) -> SaslServer:
    """Return a login that offers PLAIN and SCRAM."""
    return SaslServer(
        {"PLAIN": lambda: PlainServer(IS_VALID), "SCRAM-SHA-256": scram},
        max_session_ms=lambda _mechanism: max_session_ms,
        previous=previous,
    )


def test_a_login_ends_with_a_principal() -> None:
    """ApiVersions once, the handshake, the mechanism's messages."""
    login = sasl()
    assert login.versions_requested(is_supported=True)
    assert login.handshake("PLAIN", 1).mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert login.authenticate(b"\0alice\0secret", lambda: 0).error_code == 0
    assert login.principal == Principal("User", "alice")
    assert login.state is LoginState.COMPLETE


def test_versions_are_asked_once_and_first() -> None:
    """A second ApiVersions, or one after the handshake, ends the connection."""
    login = sasl()
    assert login.versions_requested(is_supported=True)
    assert not login.versions_requested(is_supported=True)
    assert login.state is LoginState.FAILED
    login = sasl()
    login.handshake("PLAIN", 1)
    assert not login.versions_requested(is_supported=True)


def test_an_unknown_mechanism_gets_the_list() -> None:
    """UNSUPPORTED_SASL_MECHANISM with what is enabled; the login has failed."""
    login = sasl()
    answer = login.handshake("GSSAPI", 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert login.is_over


@pytest.mark.parametrize(("now_ms", "is_in"), [(999, True), (1000, False), (2000, False)])
def test_what_has_expired_completes_no_login(now_ms: int, *, is_in: bool) -> None:
    """A token that was verified; before its end, its end is the session's."""
    claims = JwtClaims("alice", (), expires_ms=1000)
    mechanisms = {OAUTHBEARER: lambda: OAuthBearerServer(lambda _token: claims)}
    login = SaslServer(mechanisms, max_session_ms=lambda _mechanism: 0)
    login.handshake(OAUTHBEARER, 1)
    answer = login.authenticate(first_message("token"), lambda: now_ms)
    assert (answer.error_code == 0) is (login.principal is not None) is is_in
    assert answer.session_lifetime_ms == (1000 - now_ms if is_in else 0)


def test_a_repeated_login_keeps_mechanism_and_principal() -> None:
    """KIP-368: the user of an open connection stays; sessions have a lifetime."""
    first = sasl(max_session_ms=5000)
    first.handshake("PLAIN", 1)
    assert first.authenticate(b"\0alice\0secret", lambda: 0).session_lifetime_ms == 5000
    for mechanism, token, code in (
        ("PLAIN", b"\0alice\0secret", ErrorCode.NONE),
        ("PLAIN", b"\0bob\0other", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ("SCRAM-SHA-256", b"n,,n=alice,r=c", ErrorCode.SASL_AUTHENTICATION_FAILED),
    ):
        again = sasl(first)
        again.handshake(mechanism, 1)
        assert again.authenticate(token, lambda: 0).error_code == code


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["PLAIN", "SCRAM-SHA-256"]))
def test_any_bytes_are_answered(token: bytes, mechanism: str) -> None:
    """Whatever a client sends is an answer or a failed login, never another exception."""
    login = sasl()
    login.handshake(mechanism, 1)
    answer = login.authenticate(token, lambda: 0)
    assert answer.error_code in {ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED}
    assert login.is_over == bool(answer.error_code)


def test_jaas_texts_are_parsed() -> None:
    """Quotes of both kinds, escapes, `=` and `;` inside quotes."""
    found = parse_jaas('a.Plain required user_a="p=;\\"q" user_b=\'x y\' debug=true ;')
    assert found.module == "a.Plain"
    assert found.options == {"user_a": 'p=;"q', "user_b": "x y", "debug": "true"}
    assert "p=" not in repr(found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\tb\n\101\4770\"\q"', 'a\tb\nA\x2770"q'),
        ("'a\"b'", 'a"b'),
        ("/* x=; */ a-b_c.$d9 // y\n", "a-b_c.$d9"),
        ('"a//b" # c', None),
        ("/ comment\n ok", "ok"),
        ('"ends with the line\n', "ends with the line"),
        ("12", None),
        ("-a", None),
        ("a@b", None),
        ("", None),
    ],
)
def test_values_are_those_of_java(text: str, value: str | None) -> None:
    """Escapes, comments and numbers of java.io.StreamTokenizer; no value where Kafka has none."""
    if value is not None:
        assert parse_jaas(f"a.Plain required user={text};").options == {"user": value}
        return
    with pytest.raises(ValueError, match=r"key 1|key 2|terminated"):
        parse_jaas(f"a.Plain required user={text};")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.Plain",
        "a.Plain sometimes;",
        "a.Plain required",
        'a.Plain required a="b',
        "a required a;",
    ],
)
def test_other_jaas_texts_are_refused(text: str) -> None:
    """The error names no value."""
    with pytest.raises(ValueError, match=r"JAAS|login module"):
        parse_jaas(text)


def test_a_session_is_counted_from_the_end_of_its_login() -> None:
    """A mechanism may wait for others, as for the keys that have signed a token."""
    clock_ms = [0]

    def check(_token: str) -> JwtClaims:
        clock_ms[0] = 600
        return JwtClaims("alice", (), expires_ms=1000)

    mechanisms = {OAUTHBEARER: lambda: OAuthBearerServer(check)}
    login = SaslServer(mechanisms, max_session_ms=lambda _mechanism: 0)
    login.handshake(OAUTHBEARER, 1)
    answer = login.authenticate(first_message("token"), lambda: clock_ms[0])
    assert answer.session_lifetime_ms == 400


@pytest.mark.parametrize(
    "text", ["canary", "canary x", "canary required", "a.B canary", "'canary'"]
)
def test_a_text_that_is_no_entry_is_not_repeated(text: str) -> None:
    """It may be a password that stands where the whole text belongs."""
    with pytest.raises(ValueError, match="JAAS config") as caught:
        parse_jaas(text)
    assert "canary" not in str(caught.value)
