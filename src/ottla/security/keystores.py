"""Private keys and certificates in PKCS12 and JKS stores, as the PEM text that OpenSSL reads.

A store with the type JKS may hold either format, as with Java's keytool. The JKS format protects a
key by a chain of SHA-1 hashes; it is read because it is still common, and never written.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.FileBasedStore.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from contextlib import suppress
from typing import Final, NamedTuple

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_JKS_KEY, _JKS_CERTIFICATE = 1, 2
_JKS_SALT: Final = 20
_JKS_PHRASE: Final = b"Mighty Aphrodite"
_SEQUENCE, _OCTETS, _INTEGER = 0x30, 0x04, 0x02
_CONSTRUCTED: Final = 0x20
_LENGTH_OF_LENGTH: Final = 0x80
_MAX_DEPTH: Final = 16
_ENCRYPTED: Final = re.compile(
    r"-----BEGIN ENCRYPTED PRIVATE KEY-----(.*?)-----END ENCRYPTED PRIVATE KEY-----", re.DOTALL
)
MAX_DERIVATION: Final = 1 << 23
"""Rounds of PBKDF2 times bytes, or N times r times p of scrypt: seconds of a processor at most."""
_LINE: Final = 64
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([^-]*)-----END \1-----[ \t]*")
_ESCAPED_LINE_END: Final = re.compile(r"\\[rn]")


class KeyMaterial(NamedTuple):
    """The content of a store, as PEM text."""

    private_key: str
    """Not encrypted; empty without a key."""
    chain: str
    """The certificate of the key first."""
    trusted: str

    def __repr__(self) -> str:
        return "KeyMaterial([hidden])"


class StoreError(ValueError):
    """A store that cannot be read; the text contains no secret."""


def read_store(data: bytes, password: str, key_password: str | None = None) -> KeyMaterial:
    """Read a JKS or PKCS12 store, recognised by its first bytes. Raises StoreError."""
    if data.startswith(_JKS_MAGIC):
        try:
            return _read_jks(data, password, key_password or password)
        except (IndexError, UnicodeDecodeError) as error:
            raise StoreError("the JKS store is damaged") from error
    if data.startswith(b"-----BEGIN"):
        raise StoreError("it is a PEM file: set the store's type to PEM")
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError as error:
        raise StoreError("PKCS12 stores need the package cryptography") from error

    with suppress(IndexError):  # reported below
        if _derivation(data, 0) > MAX_DERIVATION:
            raise StoreError("the store's encryption takes too many rounds")
    try:
        store = pkcs12.load_pkcs12(data, password.encode())
    except ValueError as error:
        raise StoreError("the PKCS12 store is damaged, or its password is wrong") from error
    key = ""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    others = [
        cert.certificate.public_bytes(Encoding.PEM).decode() for cert in store.additional_certs
    ]
    own = "" if store.cert is None else store.cert.certificate.public_bytes(Encoding.PEM).decode()
    return KeyMaterial(key, own + "".join(others) if own else "", "".join(others))


def pem(kind: str, data: bytes) -> str:
    """Return DER bytes as a PEM block."""
    text = base64.b64encode(data).decode()
    lines = "\n".join(text[start : start + _LINE] for start in range(0, len(text), _LINE))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def check_derivation(text: str) -> None:
    """Raise StoreError for an encrypted key of a PEM text whose password would take too long.

    The rounds stand in the text: one key could keep a processor busy for hours.
    """
    for found in _ENCRYPTED.finditer(text):
        try:
            cost = _derivation(base64.b64decode("".join(found[1].split()), validate=True), 0)
        except (IndexError, binascii.Error) as error:
            raise StoreError("the encrypted key is damaged") from error
        if cost > MAX_DERIVATION:
            raise StoreError("the key's encryption takes too many rounds: encrypt it with fewer")


def _derivation(data: bytes, depth: int) -> int:
    """Return the greatest cost in nested DER: the product of integers that follow a salt."""
    if depth > _MAX_DEPTH:
        raise IndexError
    fields = _Bytes(data)
    greatest, product, after_salt = 0, 1, False
    while fields.position < len(data):
        tag, content = _element(fields)
        if tag == _INTEGER and after_salt:
            product *= int.from_bytes(content, "big")
            greatest = max(greatest, product)
            continue
        product, after_salt = 1, tag == _OCTETS
        if tag & _CONSTRUCTED:
            greatest = max(greatest, _derivation(content, depth + 1))
        elif tag == _OCTETS and content[:1] == bytes([_SEQUENCE]):
            with suppress(IndexError):  # mostly nested DER, else encrypted bytes
                greatest = max(greatest, _derivation(content, depth + 1))
    return greatest


def pem_lines(text: str) -> str:
    """Return PEM text with the line ends that OpenSSL needs.

    Kafka takes any white space for them: blanks, as of a value in one line, and the two characters
    of an escaped line end, as in environment variables.
    """
    return _BLOCK.sub(_with_lines, _ESCAPED_LINE_END.sub("\n", text))


def _with_lines(block: re.Match[str]) -> str:
    kind, body = block.groups()
    if ":" in body:  # the headers of an encrypted key have lines of their own
        return block.group()
    joined = "".join(body.split())
    lines = "\n".join(joined[start : start + _LINE] for start in range(0, len(joined), _LINE))
    return f"\n-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


class _Bytes:
    """Reads big-endian fields."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self._data):
            raise IndexError
        found = self._data[self.position : end]
        self.position = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def certificate(self, version: int) -> str:
        if version > 1:
            self.text()  # its type: X.509
        return pem("CERTIFICATE", self.take(self.number(4)))


def _read_jks(data: bytes, password: str, key_password: str) -> KeyMaterial:
    body, digest = data[:-_JKS_SALT], data[-_JKS_SALT:]
    secret = password.encode("utf-16-be")
    found = hashlib.sha1(secret + _JKS_PHRASE + body).digest()  # noqa: S324 - the format's own
    if not hmac.compare_digest(found, digest):
        raise StoreError("the JKS store is damaged, or its password is wrong")
    fields = _Bytes(body)
    fields.take(4)
    version, count = fields.number(4), fields.number(4)
    key = chain = ""
    trusted: list[str] = []
    for _ in range(count):
        tag = fields.number(4)
        fields.text()  # the alias
        fields.take(8)  # the date
        if tag == _JKS_KEY:
            protected = fields.take(fields.number(4))
            certificates = [fields.certificate(version) for _ in range(fields.number(4))]
            if not key:
                key = pem("PRIVATE KEY", _unprotected(protected, key_password))
                chain = "".join(certificates)
        elif tag == _JKS_CERTIFICATE:
            trusted.append(fields.certificate(version))
        else:
            raise StoreError(f"the JKS store has an entry of the unknown kind {tag}")
    return KeyMaterial(key, chain, "".join(trusted))


def _unprotected(protected: bytes, password: str) -> bytes:
    """Return a key as PKCS8: the XOR of its bytes and a chain of hashes that begins with a salt."""
    outer = _Bytes(_der(_Bytes(protected), _SEQUENCE))
    _der(outer, _SEQUENCE)  # the algorithm
    sealed = _der(outer, _OCTETS)
    salt, covered, check = sealed[:_JKS_SALT], sealed[_JKS_SALT:-_JKS_SALT], sealed[-_JKS_SALT:]
    secret = password.encode("utf-16-be")
    stream, block = b"", salt
    while len(stream) < len(covered):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324 - the format's own
        stream += block
    plain = bytes(a ^ b for a, b in zip(covered, stream, strict=False))
    if hashlib.sha1(secret + plain).digest() != check:  # noqa: S324 - as above
        raise StoreError("the password of the key in the JKS store is wrong")
    return plain


def _der(fields: _Bytes, tag: int) -> bytes:
    """Return the content of one DER element."""
    found, content = _element(fields)
    if found != tag:
        raise IndexError
    return content


def _element(fields: _Bytes) -> tuple[int, bytes]:
    """Return the tag and the content of one DER element; IndexError for a length without end."""
    tag, size = fields.number(1), fields.number(1)
    if size == _LENGTH_OF_LENGTH:
        raise IndexError
    if size & _LENGTH_OF_LENGTH:
        size = fields.number(size & ~_LENGTH_OF_LENGTH)
    return tag, fields.take(size)
