"""TLS contexts of servers and clients, from Kafka's settings.

PEM is read by OpenSSL itself. OpenSSL reads keys only from files: keys from a setting or from
another kind of store are in a file of memory, named by a descriptor of this process, for that time.

Kafka: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cryptography import x509

from ottla.network.fetching import regular_file
from ottla.security.keystores import (
    KeyMaterial,
    StoreError,
    check_derivation,
    pem_lines,
    read_store,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PEM: Final = "PEM"
JKS: Final = "JKS"
_PEM_START: Final = b"-----BEGIN "
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MAX_STORE_BYTES: Final = 10 * 1024 * 1024
_READ_BY_OTHERS: Final = 0o004
_JAVA_PREFIX: Final = "TLS_"


class TlsError(ValueError):
    """Invalid TLS settings; the text contains no secret."""


class Store(NamedTuple):
    """One store: a file, or texts."""

    type: str
    location: str | None
    password: str | None
    key: str | None = None
    certificates: str | None = None
    key_password: str | None = None

    def __repr__(self) -> str:
        return f"Store({self.type}, {self.location})"


class TlsSettings(NamedTuple):
    """The settings of a TLS context."""

    keys: Store
    trust: Store
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    client_auth: str = "none"
    checks_host: bool = True
    allows_dn_changes: bool = False
    allows_san_changes: bool = False


def tls_settings(value: Callable[[str], Any], client_auth: str = "none") -> TlsSettings:
    """Collect the settings; value(name) returns one by its dotted name."""

    def secret(name: str) -> str | None:
        found = value(name)
        reveal = getattr(found, "reveal", None)
        return found if reveal is None else str(reveal())

    keys = Store(
        value("ssl.keystore.type").upper(),
        value("ssl.keystore.location"),
        secret("ssl.keystore.password"),
        secret("ssl.keystore.key"),
        secret("ssl.keystore.certificate.chain"),
        secret("ssl.key.password"),
    )
    trust = Store(
        value("ssl.truststore.type").upper(),
        value("ssl.truststore.location"),
        secret("ssl.truststore.password"),
        certificates=secret("ssl.truststore.certificates"),
    )
    return TlsSettings(
        keys,
        trust,
        tuple(value("ssl.enabled.protocols")),
        tuple(value("ssl.cipher.suites")),
        client_auth,
        bool(value("ssl.endpoint.identification.algorithm")),
    )


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a listener. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if not _load_keys(context, settings.keys):
        raise TlsError("a TLS listener needs ssl.keystore.location or ssl.keystore.key")
    if not _load_trust(context, settings.trust) and settings.client_auth != "none":
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    _limit(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a client; without a trust store it trusts the system's authorities."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    context.options |= ssl.OP_NO_COMPRESSION
    if not _load_trust(context, settings.trust):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _load_keys(context, settings.keys)
    _limit(context, settings)
    return context


class Identity(NamedTuple):
    """The subject and names of a certificate, and when it expires."""

    subject: str
    names: frozenset[str]
    expires_s: float


def identity_of(store: Store) -> Identity | None:
    """Return the identity of the node's own certificate; None without one."""
    try:
        if store.type != PEM:
            text = _read(store).chain if store.location else ""
        elif store.location:
            text = _bytes_of(store.location).decode("latin-1")
        else:
            text = pem_lines(store.certificates or store.key or "")
        certificate = x509.load_pem_x509_certificates(text.encode("latin-1"))[0]
        names = _alternative_names(certificate)
    except (OSError, ValueError):  # reported where the store is loaded
        return None
    expires_s = certificate.not_valid_after_utc.timestamp()
    return Identity(certificate.subject.rfc4514_string(), names, expires_s)


def _alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(f"{type(name).__name__}:{name.value}" for name in found.value)


def identity_change(
    before: Identity | None, after: Identity | None, *, allows_dn: bool, allows_san: bool
) -> str | None:
    """Return why a new certificate must not replace another, None if it may."""
    if before is None or after is None:
        return None
    if before.subject != after.subject and not allows_dn:
        return (
            f"Keystore DistinguishedName does not match: existing={before.subject}, "
            f"new={after.subject}; ssl.allow.dn.changes=true allows it"
        )
    if not before.names <= after.names and not allows_san:
        return (
            f"Keystore SubjectAltNames do not match: existing={sorted(before.names)}, "
            f"new={sorted(after.names)}; ssl.allow.san.changes=true allows it"
        )
    return None


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Apply versions and cipher suites; OpenSSL always enables those of TLS 1.3."""
    unknown = [name for name in settings.protocols if name not in _VERSIONS]
    if unknown:
        text = f"ssl.enabled.protocols: {unknown[0]!r} is none of {', '.join(_VERSIONS)}"
        raise TlsError(text)
    versions = [_VERSIONS[name] for name in settings.protocols]
    if versions:
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    older = [openssl_name(name) for name in settings.cipher_suites if not _is_of_1_3(name)]
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError as error:
            raise TlsError(f"ssl.cipher.suites: OpenSSL knows none of {older}") from error


def _is_of_1_3(name: str) -> bool:
    return name.startswith(_JAVA_PREFIX) and "_WITH_" not in name


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a cipher suite that has Java's."""
    if not name.startswith(_JAVA_PREFIX):
        return name
    exchange, _, cipher = name.removeprefix(_JAVA_PREFIX).partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_POLY1305_SHA256", "_POLY1305")
    joined = f"{exchange}_{cipher}".replace("_", "-").replace("-CBC-SHA", "-SHA")
    return joined.removeprefix("RSA-")


def _load_keys(context: ssl.SSLContext, store: Store) -> bool:
    """Load the node's own key; return whether there is one."""
    if store.type != PEM:
        if not store.location:
            return False
        material = _read(store)
        if not material.private_key:
            raise TlsError(f"{store.location} holds no private key")
        _load_texts(context, (material.private_key, material.chain), None)
        return True
    password = store.key_password
    if store.location:
        _load_file(context, store.location, password)
    elif store.key:
        texts = (pem_lines(store.key), pem_lines(store.certificates or ""))
        _load_texts(context, texts, password)
    return bool(store.location or store.key)


def exposed_key(store: Store) -> str | None:
    """Return what is to be done about a key that every user of the machine can read.

    None for a key that is encrypted, or that only its owner and group can read. Kubernetes mounts
    secrets so that all can read them: the file alone does not say who has access to it.
    """
    if store.type != PEM or store.location is None or store.key_password is not None:
        return None
    try:
        mode = regular_file(store.location).stat().st_mode
    except OSError:
        return None  # reported when it is read
    if not mode & _READ_BY_OTHERS or sys.platform == "win32":
        return None
    return (
        f"{store.location} has a private key that others can read: chmod 600 it, or encrypt the "
        "key and set ssl.key.password"
    )


def detected_type(location: str) -> str:
    """Return the type of a store by its content: PEM, or JKS, which may also be a PKCS12 store."""
    try:
        return PEM if _PEM_START in _bytes_of(location) else JKS
    except OSError:
        return PEM  # reported when it is read


def _load_texts(context: ssl.SSLContext, texts: Sequence[str], password: str | None) -> None:
    with _named_text("\n".join(texts) + "\n") as path:
        _load_file(context, path, password, "the key store's texts")


@contextmanager
def _named_text(text: str) -> Iterator[str]:
    """Yield a path of this text: of memory that no other process can name, where there is such.

    Root file systems are read-only in many containers, and a key in a file of a disk may stay there
    after the file is removed. Elsewhere than on Linux it is a temporary file of its owner.
    """
    try:
        memory = os.fdopen(os.memfd_create("ottla-tls"), "w")
    except (AttributeError, OSError):  # no Linux, or a sandbox refuses the call
        memory = None
    if memory is not None:
        with memory:
            memory.write(text)
            memory.flush()
            path = f"/proc/self/fd/{memory.fileno()}"
            if Path(path).exists():  # /proc is not there in every container
                yield path
                return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def _load_file(
    context: ssl.SSLContext, path: str, password: str | None, shown: str | None = None
) -> None:
    try:
        check_derivation(_bytes_of(path).decode("latin-1"))
        # without a password OpenSSL would ask the terminal for one
        context.load_cert_chain(path, password=password or "")
    except StoreError as error:
        raise TlsError(f"cannot read key and certificates of {shown or path}: {error}") from error
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or str(error)
        raise TlsError(f"cannot read key and certificates of {shown or path}: {reason}") from error


def _load_trust(context: ssl.SSLContext, store: Store) -> bool:
    """Load trusted certificates; return whether there are any."""
    try:
        if store.type != PEM:
            if not store.location:
                return False
            material = _read(store)
            trusted = material.trusted or material.chain
            if not trusted:
                raise TlsError(f"{store.location} holds no certificates")
            context.load_verify_locations(cadata=trusted)
            return True
        if store.location:
            regular_file(store.location)
        if store.location or store.certificates:
            texts = pem_lines(store.certificates) if store.certificates else None
            context.load_verify_locations(cafile=store.location, cadata=texts)
    except (OSError, ssl.SSLError) as error:
        shown = store.location or "ssl.truststore.certificates"
        reason = error.strerror or str(error)
        raise TlsError(f"cannot read the certificates of {shown}: {reason}") from error
    return bool(store.location or store.certificates)


def _bytes_of(path: str) -> bytes:
    with regular_file(path).open("rb") as file:
        return file.read(_MAX_STORE_BYTES)


def _read(store: Store) -> KeyMaterial:
    assert store.location is not None
    try:
        data = _bytes_of(store.location)
        return read_store(data, store.password or "", store.key_password)
    except OSError as error:
        raise TlsError(f"cannot read {store.location}: {error.strerror}") from error
    except StoreError as error:
        raise TlsError(f"cannot read {store.location}: {error}") from error
