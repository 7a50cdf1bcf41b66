"""Signed tokens: which are believed, which are not, and the messages of OAUTHBEARER."""

from __future__ import annotations

import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.sasl.jwt import JwtClaims, JwtRules, parse_jwks, verified
from ottla.security.sasl.mechanism import AuthenticationFailed, InvalidJwt, InvalidToken
from ottla.security.sasl.oauthbearer import OAuthBearerServer, first_message
from tests.security.tokens import KEY_ID, claims, keys, part, private_key, signed

RULES = JwtRules(audiences=("other", "kafka"), issuer="https://issuer")


def check(token: str, rules: JwtRules = RULES) -> JwtClaims:
    """Verify a token with the provider's keys now."""
    return verified(token, parse_jwks(keys()), rules, time.time())


def test_a_good_token_names_its_user() -> None:
    """The subject, the scopes and the end."""
    found = check(signed())
    assert (found.subject, found.scopes) == ("alice", ("read", "write"))
    assert found.expires_ms > time.time() * 1000
    assert check(signed(user="bob"), RULES._replace(subject_claim="user")).subject == "bob"
    assert check(signed(aud="kafka", scope=["a", "b"])).scopes == ("a", "b")
    assert check(signed(exp=time.time() - 20)).subject == "alice"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": None},
        {"exp": "later"},
        {"exp": True},
        {"iat": None},
        {"iat": 9e9},
        {"nbf": 9e9},
        {"iss": "https://other"},
        {"iss": None},
        {"aud": None},
        {"aud": ["others"]},
        {"sub": None},
        {"sub": " "},
        {"sub": 5},
    ],
    ids=str,
)
def test_claims_that_do_not_count(changes: dict[str, Any]) -> None:
    """Expired, too early, of another issuer, for another audience, without a user."""
    with pytest.raises(InvalidJwt):
        check(signed(**changes))


def test_signatures_that_do_not_count() -> None:
    """None, another key's, one by the public key as a secret, another algorithm, changed claims."""
    head, body, signature = signed().split(".")
    by_secret = f"{part({'alg': 'HS256', 'kid': KEY_ID})}.{body}"
    digest = hmac.digest(keys(), by_secret.encode(), "sha256")
    for token in (
        f"{part({'alg': 'none'})}.{body}.",
        f"{head}.{body}.",
        f"{head}.{part(claims(sub='root'))}.{signature}",
        f"{by_secret}.{part(digest)}",
        signed({"alg": "RS512", "kid": KEY_ID}),
        signed({"alg": "RS256", "kid": "other"}),
        signed({"alg": "RS256", "kid": KEY_ID, "crit": ["exp"]}),
        "a.b",
        "....",
        "x" * 20_000,
    ):
        with pytest.raises(InvalidJwt):
            check(token)


def test_elliptic_curves() -> None:
    """ES256 with the two numbers side by side, as JWS has them."""
    key = ec.generate_private_key(ec.SECP256R1())
    numbers = key.public_key().public_numbers()
    x, y = (part(one.to_bytes(32, "big")) for one in (numbers.x, numbers.y))
    listed = parse_jwks(
        json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": x, "y": y}]}).encode()
    )
    begun = f"{part({'alg': 'ES256'})}.{part(claims())}"
    pair = decode_dss_signature(key.sign(begun.encode(), ec.ECDSA(hashes.SHA256())))
    signature = b"".join(one.to_bytes(32, "big") for one in pair)
    token = f"{begun}.{part(signature)}"
    assert verified(token, listed, RULES, time.time()).subject == "alice"
    with pytest.raises(InvalidJwt):
        verified(f"{begun}.{part(signature[:-1])}", listed, RULES, time.time())


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": ["x"]}', b'{"keys": [{"kty": "oct"}]}']
)
def test_sets_without_a_key(data: bytes) -> None:
    """Nothing to verify with is an error."""
    with pytest.raises(InvalidJwt):
        parse_jwks(data)


def test_the_messages_of_a_login() -> None:
    """A good token completes it; a refused one is answered, then the login ends."""
    server = OAuthBearerServer(check)
    assert server.evaluate(first_message(signed(), {"traceId": "1"})) == b""
    assert (server.user, server.is_complete) == ("alice", True)
    assert server.expires_ms is not None
    server = OAuthBearerServer(check)
    assert json.loads(server.evaluate(first_message(signed(exp=1)))) == {"status": "invalid_token"}
    assert not server.is_complete
    with pytest.raises(AuthenticationFailed):
        server.evaluate(b"\x01")
    with pytest.raises(AuthenticationFailed):
        OAuthBearerServer(check).evaluate(first_message(signed()).replace(b"n,,", b"n,a=bob,"))


@given(st.binary(max_size=200) | st.builds(lambda junk: b"n,,\x01auth=Bearer " + junk, st.binary()))
@settings(max_examples=200, deadline=None)
def test_no_bytes_complete_a_login(message: bytes) -> None:
    """What is no signed token is refused, and raises nothing else."""
    server = OAuthBearerServer(check)
    try:
        answer = server.evaluate(message)
    except InvalidToken:
        return
    assert answer
    assert not server.is_complete
    assert private_key()
