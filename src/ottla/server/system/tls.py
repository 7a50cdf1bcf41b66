"""The TLS contexts of a node's listeners, made again when a setting or a file has changed.

Connections keep the context that they were accepted with. Where new files cannot be used the
listener goes on with the old ones and says so.

Kafka: org.apache.kafka.common.security.ssl.SslFactory; it reloads when a setting is changed.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.network.tls_context import TlsError, server_context

if TYPE_CHECKING:
    import ssl

    from ottla.network.tls_context import TlsSettings

log = logging.getLogger("ottla.tls")
_Version = tuple[int, int] | None


class _Made(NamedTuple):
    settings: TlsSettings
    versions: tuple[_Version, ...]
    context: ssl.SSLContext


class TlsContexts:
    """The contexts of one node, by listener."""

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}

    def of(self, listener: str, settings: TlsSettings) -> ssl.SSLContext:
        """Return the context in force. Raises TlsError when there never was one."""
        versions = tuple(map(_version, (settings.keys.location, settings.trust.location)))
        made = self._made.get(listener)
        if made is not None and made.versions == versions and made.settings == settings:
            return made.context
        try:
            context = server_context(settings)
        except TlsError as error:
            if made is None:
                raise
            text = "listener %s keeps its old certificates: %s; correct its files or settings"
            log.error(text, listener, error, extra={"event": "tls.reload.failed"})  # noqa: TRY400 - the text says all
            context = made.context
        else:
            if made is not None:
                log.info("listener %s: new certificates", listener, extra={"event": "tls.reload"})
        self._made[listener] = _Made(settings, versions, context)
        return context


def _version(path: str | None) -> _Version:
    """Return what changes when a file is written, None when it is not there."""
    if path is None:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
