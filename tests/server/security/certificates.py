"""Keys and certificates for tests: an authority of their own."""

from __future__ import annotations

import datetime as dt
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "changeit"
_DAY = dt.timedelta(days=1)


class Pair(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        pkcs8 = PrivateFormat.PKCS8
        return self.key.private_bytes(Encoding.PEM, pkcs8, NoEncryption()).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path) -> str:
        """Write both to one file; return its name."""
        path.touch(mode=0o600)
        path.write_text(self.key_pem + self.certificate_pem)
        return str(path)

    def write_pkcs12(self, path: Path) -> str:
        """Write both to a PKCS12 store."""
        data = pkcs12.serialize_key_and_certificates(
            b"own", self.key, self.certificate, None, BestAvailableEncryption(PASSWORD.encode())
        )
        path.write_bytes(data)
        return str(path)


class Authority:
    """Signs certificates."""

    def __init__(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(name, name, key).add_extension(constraints, critical=True)
        self.pair = Pair(key, builder.sign(key, hashes.SHA256()))

    def issue(self, common_name: str, *, days: int = 1) -> Pair:
        """Return a certificate for this host and a name; days < 0 is one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.COUNTRY_NAME, "NL"),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ottla, Inc"),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = _builder(subject, self.pair.certificate.subject, key, days)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Pair(key, builder.sign(self.pair.key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * _DAY)
        .not_valid_after(now + days * _DAY)
    )
