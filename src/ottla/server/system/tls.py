"""The TLS contexts of a node's listeners, rebuilt when a setting or a file has changed.

Connections keep the context that they were accepted with. When new files cannot be used, the
listener keeps its old context and logs the error.

Kafka: org.apache.kafka.common.security.ssl.SslFactory; it reloads when a setting is changed.
"""

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.network.tls_context import (
    Identity,
    TlsError,
    exposed_key,
    identity_change,
    identity_of,
    server_context,
)

if TYPE_CHECKING:
    import ssl

    from ottla.clock import Clock
    from ottla.network.tls_context import TlsSettings

WARNING_S: Final = 30 * 86_400
_DAY_S: Final = 86_400
log = logging.getLogger("ottla.tls")
_Version = tuple[int, int] | None


class _Made(NamedTuple):
    settings: TlsSettings
    versions: tuple[_Version, ...]
    context: ssl.SSLContext
    identity: Identity | None

    @property
    def expires_s(self) -> float | None:
        return None if self.identity is None else self.identity.expires_s


class TlsContexts:
    """The contexts of one node, by listener."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: dict[str, _Made] = {}
        self._warned_s: dict[str, float] = {}

    def expires_s(self, listener: str) -> float | None:
        """Return when a listener's certificate expires, in seconds since 1970."""
        made = self._made.get(listener)
        return None if made is None else made.expires_s

    def of(self, listener: str, settings: TlsSettings) -> ssl.SSLContext:
        """Return the context in force. Raises TlsError when the first one cannot be built."""
        versions = tuple(map(_version, (settings.keys.location, settings.trust.location)))
        made = self._made.get(listener)
        if made is not None and made.versions == versions and made.settings == settings:
            self._warn(listener, made.expires_s)
            return made.context
        identity = identity_of(settings.keys)
        try:
            context = server_context(settings)
            if made is not None:
                refusal = identity_change(
                    made.identity,
                    identity,
                    allows_dn=settings.allows_dn_changes,
                    allows_san=settings.allows_san_changes,
                )
                if refusal is not None:
                    raise TlsError(refusal)
        except TlsError as error:
            if made is None:
                raise
            text = "listener %s keeps its old certificates: %s; correct its files or settings"
            log.error(text, listener, error, extra={"event": "tls.reload.failed"})  # noqa: TRY400 - the text says all
            context, identity = made.context, made.identity
        else:
            if made is not None:
                log.info("listener %s: new certificates", listener, extra={"event": "tls.reload"})
            exposed = exposed_key(settings.keys)
            if exposed is not None:
                event = {"event": "tls.key.exposed"}
                log.warning("listener %s: %s", listener, exposed, extra=event)
        self._made[listener] = made = _Made(settings, versions, context, identity)
        if made.expires_s is not None:
            event = {"event": "tls.certificate"}
            text = "listener %s: its certificate expires on %s"
            log.info(text, listener, _day(made.expires_s), extra=event)
        self._warn(listener, made.expires_s)
        return context

    def _warn(self, listener: str, expires_s: float | None) -> None:
        """Warn of a certificate that expires soon or has, once a day at most."""
        now_s = self._clock.now_ms() / 1000
        if expires_s is None or expires_s - now_s > WARNING_S:
            return
        if now_s - self._warned_s.get(listener, -_DAY_S) < _DAY_S:
            return
        self._warned_s[listener] = now_s
        verb = "expires" if expires_s > now_s else "expired"
        text = "listener %s: its certificate %s on %s; write a new one to the same file"
        log.warning(text, listener, verb, _day(expires_s), extra={"event": "tls.expiry"})


def _day(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _version(path: str | None) -> _Version:
    """Return a value that changes when the file is written; None when it does not exist."""
    if path is None:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
