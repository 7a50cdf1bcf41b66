"""Fetches small documents of allowed URLs and files: keys and tokens of an identity provider.

Redirects are not followed, and time and size are bounded. It blocks: call it in a worker.

Kafka: org.apache.kafka.common.security.oauthbearer.internals.secured.HttpAccessTokenRetriever,
org.apache.kafka.common.security.oauthbearer.internals.secured.ConfigurationUtils.
"""

from __future__ import annotations

import errno
import http.client
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from ottla.config.security import ALLOWED_FILES, ALLOWED_URLS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

MAX_DOCUMENT_BYTES: Final = 1 << 20
DEFAULT_TIMEOUT_S: Final = 10.0


class FetchFailed(Exception):
    """A document that is not available; the text contains no secret."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def check_allowed(url: str, urls: Sequence[str], files: Sequence[str]) -> None:
    """Raise ValueError unless the settings allow a URL; nothing is allowed where they are empty."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        check_file(unquote(parts.path), files)
    elif parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url} is neither http, https nor file")
    elif url not in urls:
        raise ValueError(f"{url} is not allowed: list it in {ALLOWED_URLS}")


def check_file(path: str, files: Sequence[str]) -> None:
    """Raise ValueError unless the settings allow a file."""
    if path not in files:
        raise ValueError(f"the file {path} is not allowed: list it in {ALLOWED_FILES}")


def regular_file(path: str) -> Path:
    """Return the path of a regular file with content; OSError for anything else.

    Opening a terminal, a pipe or a device that a setting names may wait for ever; the kernel's own
    files, some of which wait as well, have no size.
    """
    found = Path(path)
    status = found.stat()
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        raise OSError(errno.EINVAL, "not a regular file with content", path)
    return found


def read_file(path: str) -> bytes:
    """Return a small file; FetchFailed when it cannot be read."""
    try:
        with regular_file(path).open("rb") as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise FetchFailed(f"{path}: {error.strerror}") from error
    return _bounded(path, data)


def fetch(
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Return the document at an http, https or file URL; with a body it is posted."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return read_file(unquote(parts.path))
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    try:
        connection.request("GET" if body is None else "POST", target, body, dict(headers or {}))
        answer = connection.getresponse()
        data = answer.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchFailed(f"{shown}: {type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise FetchFailed(f"{shown} answers with status {answer.status}", answer.status)
    return _bounded(shown, data)


def _bounded(shown: str, data: bytes) -> bytes:
    if len(data) > MAX_DOCUMENT_BYTES:
        raise FetchFailed(f"{shown} is larger than {MAX_DOCUMENT_BYTES} bytes")
    return data
