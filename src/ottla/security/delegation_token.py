"""Delegation tokens: their HMACs, and the SCRAM credentials that brokers check.

A token's HMAC is the password; it is made from the id and the secret that all nodes share, so only
the id is stored. A login with a token is one by SCRAM with the id as the name.

Kafka: org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache,
org.apache.kafka.security.DelegationTokenManager (KIP-48).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from ottla.security.sasl.scram import (
    HASHES,
    MIN_ITERATIONS,
    TOKEN_SHAPE,
    ScramCredential,
    invented_credential,
    scram_keys,
)

if TYPE_CHECKING:
    from ottla.protocol.records.metadata import DelegationTokenRecord

_MAX_KNOWN: Final = 4096


def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the password of a token."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def is_owner_or_renewer(token: DelegationTokenRecord, principal: str) -> bool:
    """Whether a principal may renew, expire and describe a token without an ACL."""
    return token.owner == principal or principal in token.renewers


class TokenCredentials:
    """The SCRAM credentials of tokens, computed at a token's first login (milliseconds)."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._known: dict[tuple[str, str, bytes], ScramCredential] = {}

    def of(
        self, mechanism: str, token: DelegationTokenRecord, salt_secret: bytes
    ) -> ScramCredential:
        """Return the credential of a token; it expires when the token does.

        The salt is the one that an unknown token gets.
        """
        key = (mechanism, token.token_id, salt_secret)
        made = self._known.pop(key, None) or self._make(*key)
        self._known[key] = made
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        owner = token.owner.partition(":")[2]
        return made._replace(user=owner, expires_ms=token.expiration_timestamp)

    def _make(self, mechanism: str, token_id: str, salt_secret: bytes) -> ScramCredential:
        digest = HASHES[mechanism]
        password = base64.b64encode(token_hmac(self._secret, token_id))
        salt = invented_credential(salt_secret, mechanism, token_id, (TOKEN_SHAPE,)).salt
        salted = hashlib.pbkdf2_hmac(digest, password, salt, MIN_ITERATIONS)
        return ScramCredential(salt, *scram_keys(digest, salted), MIN_ITERATIONS)
