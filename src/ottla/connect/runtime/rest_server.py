"""The listeners of the REST API, and the address by which other workers reach it.

Kafka: org.apache.kafka.connect.runtime.rest.{RestServer, RestServerConfig, util.SSLUtils}.
"""

from __future__ import annotations

import logging
import re
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.config.security import SecuritySettings
from ottla.connect.errors import ConnectException
from ottla.connect.runtime.rest_access import EXTENSIONS, OPEN, READ_ONLY, RestAccess, read_users
from ottla.http.host import Access, HttpHost, is_loopback
from ottla.network.tls_context import (
    PEM,
    TlsError,
    TlsSettings,
    client_context,
    detected_type,
    exposed_key,
    server_context,
    tls_settings,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from ottla.connect.runtime.rest import ConnectApi

log = logging.getLogger("ottla.connect")
_LISTENER: Final = re.compile(r"(.*)://(?:\[([0-9a-fA-F%._:]+)\]|([0-9a-zA-Z\-%._:]*)):(-?[0-9]+)")
_PREFIX: Final = "listeners.https."
_TYPES: Final = ("ssl.keystore.type", "ssl.truststore.type")
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared
_HTTP: Final = "http"
_HTTPS: Final = "https"


class RestListener(NamedTuple):
    """An entry of `listeners`."""

    scheme: str
    host: str
    """Empty for the default interface."""
    port: int


def parse_listener(text: str) -> RestListener:
    """Read an entry; ConnectException with Kafka's texts."""
    match = _LISTENER.fullmatch(text)
    if match is None or int(match[4]) not in range(1 << 16):
        raise ConnectException("Listener doesn't have the right format (protocol://hostname:port).")
    scheme = match[1].lower()
    if scheme not in {_HTTP, _HTTPS}:
        raise ConnectException(f'Listener protocol must be either "{_HTTP}" or "{_HTTPS}".')
    return RestListener(scheme, match[2] or match[3], int(match[4]))


def _tls(settings: Mapping[str, str]) -> TlsSettings:
    """Return the TLS settings: those with the prefix, or all of the worker's own."""
    own = {k.removeprefix(_PREFIX): it for k, it in settings.items() if k.startswith(_PREFIX)}
    chosen = own or settings
    table = SecuritySettings.parse(
        {k: it for k, it in chosen.items() if k in SecuritySettings.keys}
    )
    client_auth = chosen.get("ssl.client.auth", "none")
    if client_auth not in {"none", "requested", "required"}:
        raise ConnectException(
            f"Invalid value {client_auth} for configuration ssl.client.auth: String must be one "
            "of: required, requested, none"
        )

    def value(name: str) -> Any:
        location = table.value(f"{name.removesuffix('.type')}.location") if name in _TYPES else None
        if location is not None and name not in chosen:
            return detected_type(location)  # Kafka's default is JKS; texts are PEM
        return table.value(name)

    return tls_settings(value, client_auth)


def forwarding_context(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the context of requests to other workers, None where none is over HTTPS.

    It shows the key of the listeners. Raises ConnectException.
    """
    entries = settings.get("listeners", "").lower()
    if f"{_HTTPS}://" not in entries:
        return None
    try:
        return client_context(_tls(settings))
    except TlsError as error:
        raise ConnectException(str(error)) from error


class RestServer:
    """The bound listeners of a worker."""

    def __init__(self, settings: Mapping[str, str], values: Mapping[str, Any]) -> None:
        """Bind them; ConnectException for those that are unsafe, invalid or in use."""
        self._users = read_users(values)
        self._readers = frozenset(values[READ_ONLY])
        self._is_open = values[OPEN]
        self._signed = values.get("connect.protocol", "sessioned").lower() == "sessioned"
        listeners = [parse_listener(it) for it in values["listeners"]]
        self._context: ssl.SSLContext | None = None
        self._asks_certificate = False
        if any(it.scheme == _HTTPS for it in listeners):
            self._load_tls(settings)
        self._hosts: list[tuple[RestListener, HttpHost]] = []
        try:
            for listener in listeners:
                self._hosts.append((listener, self._bind(listener)))
            self.scheme, self._host, self._port = self._advertised(values)
        except Exception:
            self.stop()
            raise

    def _load_tls(self, settings: Mapping[str, str]) -> None:
        try:
            made = _tls(settings)
            exposed = exposed_key(made.keys)
            if exposed is not None:
                log.warning("%s", exposed)
            self._context = server_context(made)
        except TlsError as error:
            raise ConnectException(str(error)) from error
        # without a trust store whoever has a certificate of a public authority would be let in
        trust = made.trust
        has_trust = bool(trust.location or (trust.certificates and trust.type == PEM))
        self._asks_certificate = made.client_auth == "required" and has_trust

    def _is_safe(self, listener: RestListener) -> bool:
        has_certificate = self._asks_certificate and listener.scheme == _HTTPS
        has_login = has_certificate or self._users is not None
        return self._is_open or (has_login and self._signed)

    def _bind(self, listener: RestListener) -> HttpHost:
        host = "127.0.0.1" if listener.host.lower() == "localhost" else listener.host
        is_safe = self._is_safe(listener)
        if not host:
            host = _WILDCARDS[0] if is_safe else "127.0.0.1"
        shown = f"{_shown(host)}:{listener.port}"
        if not is_safe and not _is_local(host):
            raise ConnectException(
                f"listeners: other machines reach {host}, where each may configure connectors: set "
                f"{EXTENSIONS} or ssl.client.auth=required and a trust store, with "
                f"connect.protocol=sessioned, listen on 127.0.0.1, or accept it by {OPEN}=true "
                "(docs/connect.md)"
            )
        try:
            server = HttpHost(host, listener.port, "the REST API")
        except OSError as error:
            text = f"cannot listen on {shown}: {error.strerror or error}"
            raise ConnectException(text) from error
        if self._users is not None and listener.scheme == _HTTP and not _is_local(host):
            log.warning("listeners: passwords go over http://%s in clear", shown)
        return server

    def _advertised(self, values: Mapping[str, Any]) -> tuple[str, str, int]:
        """Return scheme, host and port that others use."""
        schemes = {it.scheme for it, _ in self._hosts}
        scheme = values["rest.advertised.listener"]
        scheme = (_HTTP if _HTTP in schemes else _HTTPS) if scheme is None else scheme.lower()
        if scheme not in schemes:
            raise ConnectException(f"rest.advertised.listener: listeners has no {scheme}")
        listener, server = next(it for it in self._hosts if it[0].scheme == scheme)
        host = values["rest.advertised.host.name"] or listener.host or server.address[0]
        if host in _WILDCARDS:
            host = socket.gethostname()
        return scheme, host, values["rest.advertised.port"] or server.address[1]

    @property
    def address(self) -> str:
        """The worker's id: host and port that others use."""
        return f"{_shown(self._host)}:{self._port}"

    @property
    def url(self) -> str:
        """The address of the API for other workers."""
        return f"{self.scheme}://{self.address}/"

    def start(self, api: ConnectApi) -> None:
        """Serve the API at every listener."""
        for listener, server in self._hosts:
            is_local = is_loopback(server.address[0])
            access = RestAccess(self._users, self._readers, is_local, self._signed)
            context = self._context if listener.scheme == _HTTPS else None
            server.start(partial(api.pages, access), Access(context))
            server.begin()

    def stop(self) -> None:
        """Close them."""
        for _, server in self._hosts:
            server.stop()


def _is_local(host: str) -> bool:
    try:
        return is_loopback(host)
    except ValueError:
        return False  # a name, which may be that of any machine


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
