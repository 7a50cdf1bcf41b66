"""The addresses of databases as Java writes them, and their parameters as drivers here take them.

Kafka: the URLs of the JDBC drivers of PostgreSQL, MariaDB, MySQL and SQLite.
"""

from __future__ import annotations

import logging
import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.config.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("ottla.connect.jdbc")
_SERVER = re.compile(
    r"(?:jdbc:)?(postgresql|mariadb|mysql)://(?:([^@/?]*)@)?(\[[^\]]+\]|[^:/?,]*)(?::(\d+))?/([^?/]*)"
    r"(?:\?(.*))?",
)
_SQLITE = re.compile(r"(?:jdbc:)?sqlite:(?!/{2})(.+)")
_PORTS: Final = {"postgresql": 5432, "mariadb": 3306, "mysql": 3306}
_PORT_MAX: Final = 65_535
_PORT_DIGITS_MAX: Final = 5
"""Longer numbers are not parsed, as Python refuses to above some length."""
_CONNECT_TIMEOUT_S: Final = 10
"""Time that a connection may take; drivers wait for minutes without it."""
_OWN: Final = {"connection.url", "connection.attempts", "connection.backoff.ms"}
_POSTGRESQL: Final = {
    "applicationname": "application_name",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
}
_SSL_MODES: Final = {
    "disable": None,
    "disabled": None,
    "trust": (ssl.CERT_NONE, False),
    "required": (ssl.CERT_NONE, False),
    "verify-ca": (ssl.CERT_REQUIRED, False),
    "verify_ca": (ssl.CERT_REQUIRED, False),
    "verify-full": (ssl.CERT_REQUIRED, True),
    "verify_identity": (ssl.CERT_REQUIRED, True),
}
_CERTIFICATES: Final = ("serversslcert", "sslrootcert", "ssl_ca")


@dataclass(frozen=True, slots=True)
class Address:
    """A database, and the arguments of its driver; the password is never shown."""

    kind: str
    """postgresql, mysql or sqlite."""
    database: str
    host: str = ""
    port: int = 0
    user: str | None = None
    password: Secret | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Show the database without user, password and parameters."""
        return (
            f"{self.kind} {self.host}:{self.port}/{self.database}" if self.host else self.database
        )


def _refuse(text: str) -> ConfigErrors:
    return ConfigErrors([ConfigProblem("connection.url", None, text)])


def parse_address(values: Mapping[str, Any], config: Mapping[str, str]) -> Address:
    """Read a connector's settings; each `connection.X` is a parameter of the driver, too.

    Texts of errors never have the URL, which may hold a password.
    """
    url = values["connection.url"].strip()
    sqlite = _SQLITE.fullmatch(url)
    if sqlite is not None:
        return Address("sqlite", sqlite[1])
    server = _SERVER.fullmatch(url)
    if server is None:
        raise _refuse(
            "Invalid value for configuration connection.url: it is not one of "
            "jdbc:postgresql://HOST:PORT/DATABASE, jdbc:mariadb://HOST:PORT/DATABASE, "
            "jdbc:mysql://HOST:PORT/DATABASE and jdbc:sqlite:FILE"
        )
    kind, login, host, port, database, query = server.groups()
    if port is not None and (len(port) > _PORT_DIGITS_MAX or int(port) > _PORT_MAX):
        raise _refuse(f"The port of connection.url is above {_PORT_MAX}")
    parameters = {key.lower(): text for key, text in parse_qsl(query or "", keep_blank_values=True)}
    if login:
        user, _, password = login.partition(":")
        parameters |= {"user": unquote(user)} | (
            {"password": unquote(password)} if password else {}
        )
    for name, text in config.items():
        if name.startswith("connection.") and name not in _OWN:
            parameters[name.removeprefix("connection.").lower()] = text
    user = values["connection.user"] or parameters.pop("user", None)
    password = values["connection.password"]
    if password is None and "password" in parameters:
        password = Secret(parameters["password"])
    parameters.pop("user", None)
    parameters.pop("password", None)
    arguments = _postgresql(parameters) if kind == "postgresql" else _mysql(parameters)
    return Address(
        "postgresql" if kind == "postgresql" else "mysql",
        unquote(database),
        host.strip("[]") or "localhost",
        int(port or _PORTS[kind]),
        user,
        password,
        arguments,
    )


def _postgresql(parameters: dict[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT_S}
    if parameters.pop("ssl", "false").lower() in {"", "true"}:
        arguments["sslmode"] = "verify-full"
    for name, theirs in _POSTGRESQL.items():
        if name in parameters:
            arguments[theirs] = parameters.pop(name)
    if "currentschema" in parameters:
        path = parameters.pop("currentschema").replace("\\", "\\\\").replace(" ", "\\ ")
        arguments["options"] = f"-csearch_path={path}"
    _refuse_security(parameters)
    return arguments


def _mysql(parameters: dict[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT_S}
    uses_tls = [parameters.pop(it, "false").lower() for it in ("usessl", "requiressl")]
    mode = parameters.pop("sslmode", "required" if "true" in uses_tls else "preferred").lower()
    certificate = next((parameters.pop(it) for it in _CERTIFICATES if it in parameters), None)
    if mode in _SSL_MODES:
        checks = _SSL_MODES[mode]
        if checks is not None:
            try:
                context = ssl.create_default_context(cafile=certificate)
            except (OSError, ValueError) as error:  # no file, no certificate, or no path
                raise _refuse(f"serverSslCert of connection.url cannot be read: {error}") from None
            context.check_hostname = checks[1]
            context.verify_mode = checks[0]
            arguments["ssl"] = context
    elif mode != "preferred":
        raise _refuse(f"sslMode of connection.url is none of {', '.join(_SSL_MODES)}")
    _refuse_security(parameters)
    return arguments


def _refuse_security(parameters: Mapping[str, str]) -> None:
    """Ignore parameters that tune a Java driver; refuse those about security."""
    risky = [it for it in parameters if re.search("ssl|tls|trust|cert|key|gss|krb|auth", it)]
    if risky:
        raise _refuse(f"Parameters of connection.url have no counterpart here: {', '.join(risky)}")
    if parameters:
        log.info("Parameters of the Java driver are ignored: %s", ", ".join(parameters))
