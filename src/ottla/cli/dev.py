"""The directory of a development node: certificates, passwords, settings and data.

Existing files are kept, so that clients keep working after a restart.

Kafka: none.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla.config.broker.unsupported import STANDARD_AUTHORIZER
from ottla.config.properties import parse_properties, write_properties
from ottla.server.node.settings import development_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ADMIN: Final = "admin"
NODE: Final = "node"
MECHANISM: Final = "SCRAM-SHA-512"
_PASSWORD_BYTES: Final = 18
_DIRECTORY_MODE: Final = 0o700
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DAYS = 365
_CLOCK_SKEW = dt.timedelta(hours=1)
_OWNER_ONLY = 0o600


class DevFiles(NamedTuple):
    """The files by name; `prepare` creates missing ones."""

    root: Path

    @property
    def authority(self) -> Path:
        """The certificate that clients trust."""
        return self.root / "authority.pem"

    @property
    def settings(self) -> Path:
        """The node's server.properties."""
        return self.root / "server.properties"

    @property
    def client(self) -> Path:
        """Settings of Java clients and of the tools, for `--command-config`."""
        return self.root / "client.properties"

    @property
    def kcat(self) -> Path:
        """Settings of librdkafka, for kcat's -F."""
        return self.root / "kcat.conf"

    @property
    def password(self) -> str:
        """The password of the user `admin`."""
        text = self.kcat.read_text(encoding="utf-8")
        return parse_properties(text)["sasl.password"]

    def prepare(self, port: int) -> tuple[str, ...]:
        """Write missing files; return the users of a new node in the form of `--add-scram`."""
        self.root.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        if self.settings.exists():
            settings = parse_properties(self.settings.read_text(encoding="utf-8"))
            settings["listeners"] = _listeners(port)
            write_private(self.settings, write_properties(settings))
            return ()
        authority = new_authority("Ottla development authority")
        self.authority.write_text(authority.certificate_pem, encoding="utf-8")
        node = issue(authority, NODE, LOOPBACK)
        write_private(self._node_keys, node.key_pem + node.certificate_pem)
        passwords = {user: secrets.token_urlsafe(_PASSWORD_BYTES) for user in (ADMIN, NODE)}
        write_private(self.client, write_properties(self._client_settings(passwords[ADMIN])))
        write_private(
            self.kcat,
            write_properties(
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanisms": MECHANISM,
                    "sasl.username": ADMIN,
                    "sasl.password": passwords[ADMIN],
                    "ssl.ca.location": str(self.authority),
                }
            ),
        )
        write_private(self.settings, write_properties(self._node_settings(port, passwords[NODE])))
        return tuple(
            f"{MECHANISM}=[name={user},password={password}]" for user, password in passwords.items()
        )

    @property
    def _node_keys(self) -> Path:
        return self.root / "node.pem"

    def _node_settings(self, port: int, password: str) -> dict[str, str]:
        jaas = f"listener.name.clients.{MECHANISM.lower()}.sasl.jaas.config"
        return {
            **development_defaults(port),
            "listeners": _listeners(port),
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "CLIENTS",
            "log.dirs": str(self.root / "data"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._node_keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            jaas: _login(NODE, password),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{NODE}",
        }

    def _client_settings(self, password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _login(ADMIN, password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }


def _listeners(port: int) -> str:
    return f"CLIENTS://localhost:{port},CONTROLLER://localhost:0"


def _login(user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{password}";'


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
