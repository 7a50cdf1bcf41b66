"""Encrypted keys: how many rounds the derivation of their key may take."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    pkcs12,
)

from ottla.security import keystores
from ottla.security.keystores import StoreError, check_derivation, read_store

PBES2, PBKDF2, SCRYPT = "1.2.840.113549.1.5.13", "1.2.840.113549.1.5.12", "1.3.6.1.4.1.11591.4.11"
PBE_SHA1_3DES = "1.2.840.113549.1.12.1.3"
AES = "2.16.840.1.101.3.4.1.42"


def der(tag: int, *parts: bytes) -> bytes:
    """Return one DER element."""
    content = b"".join(parts)
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def number(value: int) -> bytes:
    """Return a positive INTEGER."""
    return der(2, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def oid(text: str) -> bytes:
    """Return an OBJECT IDENTIFIER."""
    first, second, *others = map(int, text.split("."))
    encoded = bytes([first * 40 + second])
    for one in others:
        digits = [one & 0x7F]
        while one := one >> 7:
            digits.append(one & 0x7F | 0x80)
        encoded += bytes(reversed(digits))
    return der(6, encoded)


def pem_of(algorithm: bytes) -> str:
    """Return an encrypted key as PEM text."""
    data = der(0x30, algorithm, der(4, bytes(160)))
    begin, end = (f"-----{one} ENCRYPTED PRIVATE KEY-----\n" for one in ("BEGIN", "END"))
    return f"{begin}{base64.encodebytes(data).decode()}{end}"


def pbes2(kdf: str, *numbers: int) -> bytes:
    """Return PBES2 with a key derivation of these parameters."""
    salt = der(4, b"saltsalt")
    derivation = der(0x30, oid(kdf), der(0x30, salt, *map(number, numbers)))
    cipher = der(0x30, oid(AES), der(4, bytes(16)))
    return der(0x30, oid(PBES2), der(0x30, derivation, cipher))


@pytest.mark.parametrize(
    "algorithm",
    [
        pbes2(PBKDF2, 0x7FFF_FFFF),
        pbes2(PBKDF2, 1_000_000, 32),
        pbes2(SCRYPT, 1 << 17, 1, 1 << 17),
        der(0x30, oid(PBE_SHA1_3DES), der(0x30, der(4, b"saltsalt"), number(0x7FFF_FFFF))),
    ],
    ids=["PBKDF2", "PBKDF2 with a length", "scrypt", "PBE of PKCS12"],
)
def test_a_key_that_takes_hours_is_refused(algorithm: bytes) -> None:
    """The rounds are compared before any is computed."""
    with pytest.raises(StoreError, match="too many rounds"):
        check_derivation(pem_of(algorithm))


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_key_that_is_no_der_is_refused(cut: int) -> None:
    """What cannot be read cannot be bounded either."""
    begin, *lines, end = pem_of(pbes2(PBKDF2, 1000)).splitlines()
    data = base64.b64decode("".join(lines))[:-cut]
    with pytest.raises(StoreError, match="damaged"):
        check_derivation("\n".join((begin, base64.b64encode(data).decode(), end)))
    with pytest.raises(StoreError, match="damaged"):  # a length without an end
        check_derivation("\n".join((begin, base64.b64encode(b"\x30\x80\x00\x00").decode(), end)))


def test_usual_keys_may_be_read() -> None:
    """Those of OpenSSL, of Java's tools and of cryptography."""
    key = ec.generate_private_key(ec.SECP256R1())
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    check_derivation(encrypted.decode())
    check_derivation(pem_of(pbes2(PBKDF2, 2048)))
    check_derivation(pem_of(pbes2(PBKDF2, 10_000, 32)))
    check_derivation(pem_of(pbes2(SCRYPT, 16_384, 8, 1)))


def test_a_store_of_many_rounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """PKCS12 has its rounds in nested DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    stored = pkcs12.serialize_key_and_certificates(
        b"node", key, None, None, BestAvailableEncryption(b"secret")
    )
    assert read_store(stored, "secret").private_key
    monkeypatch.setattr(keystores, "MAX_DERIVATION", 1000)
    with pytest.raises(StoreError, match="too many rounds"):
        read_store(stored, "secret")
