"""A self-signed certificate authority for a development node.

Kafka: none; its documentation does this with keytool and openssl.
"""

from __future__ import annotations

import datetime as dt
import os
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DAYS = 365
_CLOCK_SKEW = dt.timedelta(hours=1)
_OWNER_ONLY = 0o600


class Pair(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        """The key in PKCS #8, for OpenSSL and Java."""
        pkcs8 = PrivateFormat.PKCS8
        return self.key.private_bytes(Encoding.PEM, pkcs8, NoEncryption()).decode()

    @property
    def certificate_pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()


def new_authority(common_name: str) -> Pair:
    """Return a self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = _builder(name, name, key).add_extension(constraints, critical=True)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = builder.add_extension(usage, critical=True)
    return Pair(key, builder.sign(key, hashes.SHA256()))


def issue(authority: Pair, common_name: str, hosts: Sequence[str]) -> Pair:
    """Return a certificate for a node; it also serves as a client's."""
    key = ec.generate_private_key(ec.SECP256R1())
    roles = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_name(common_name), authority.certificate.subject, key)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(roles), critical=False)
    )
    return Pair(key, builder.sign(authority.key, hashes.SHA256()))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY), "w") as file:
        os.fchmod(file.fileno(), _OWNER_ONLY)
        file.write(text)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=_DAYS))
    )
