"""The record of a SCRAM credential, and the parser of `SCRAM-SHA-256=[name=alice,password=…]`.

Kafka: org.apache.kafka.metadata.storage.ScramParser. The password itself is not stored (RFC 5802).
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.metadata import UserScramCredentialRecord
from ottla.security.sasl.scram import scram_keys

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
_SALT_BYTES: Final = 24
HASHES: Final = {1: "sha256", 2: "sha512"}
"""Hash algorithm by the mechanism's number in records."""
_MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_KEYS: Final = frozenset({"name", "password", "salt", "saltedpassword", "iterations"})


def credential_record(
    name: str, mechanism: int, *, salt: bytes, salted_password: bytes, iterations: int
) -> UserScramCredentialRecord:
    """Return a user's credential: the keys that verify the password (RFC 5802)."""
    stored_key, server_key = scram_keys(HASHES[mechanism], salted_password)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=stored_key,
        server_key=server_key,
        iterations=iterations,
    )


def parse_scram_argument(text: str, new_salt: Callable[[int], bytes]) -> UserScramCredentialRecord:
    """Read one --add-scram argument; new_salt(bytes) makes the salt when none is given.

    ValueError, with a text for the user, when it cannot be read.
    """
    name, equals, rest = text.partition("=")
    if not equals:
        raise ValueError(f"Failed to find equals sign in SCRAM argument '{text}'")
    if name not in _MECHANISMS:
        raise ValueError(f"The add-scram mechanism {name} is not supported.")
    mechanism = _MECHANISMS[name]
    if not rest.startswith("["):
        raise ValueError("Expected configuration string to start with [")
    if not rest.endswith("]"):
        raise ValueError("Expected configuration string to end with ]")
    values = _parse_components(rest[1:-1])
    user = values.get("name")
    if user is None:
        raise ValueError("You must supply 'name' to add-scram")
    iterations = _iterations(values.get("iterations"), name)
    salt = b64decode(values["salt"]) if "salt" in values else new_salt(_SALT_BYTES)
    return credential_record(
        user,
        mechanism,
        salt=salt,
        salted_password=_salted_password(values, HASHES[mechanism], salt, iterations),
        iterations=iterations,
    )


def _parse_components(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for component in text.split(","):
        key, equals, value = component.partition("=")
        if not equals:
            raise ValueError(f"No equals sign found in SCRAM component: {component}")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if key not in _KEYS:
            raise ValueError(f"Unknown SCRAM configurations: {key}")
        values[key] = value
    return values


def _iterations(text: str | None, mechanism: str) -> int:
    if text is None:
        return MIN_ITERATIONS
    iterations = int(text)
    if iterations < MIN_ITERATIONS:
        raise ValueError(
            f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {mechanism}"
        )
    if iterations > MAX_ITERATIONS:
        raise ValueError(
            f"The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {mechanism}"
        )
    return iterations


def _salted_password(values: dict[str, str], digest: str, salt: bytes, iterations: int) -> bytes:
    password, salted = values.get("password"), values.get("saltedpassword")
    if (password is None) == (salted is None):
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if salted is not None:
        if "salt" not in values:
            raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
        return b64decode(salted)
    assert password is not None, "exactly one of the two is given"
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
