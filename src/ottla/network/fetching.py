"""Fetches small documents of allowed URLs and files: keys and tokens of an identity provider.

Redirects are not followed, and time and size are bounded. It blocks: call it in a worker.

Kafka: org.apache.kafka.common.security.oauthbearer.internals.secured.HttpAccessTokenRetriever,
org.apache.kafka.common.security.oauthbearer.internals.secured.ConfigurationUtils.
"""

from __future__ import annotations

import errno
import http.client
import io
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from ottla.config.security import ALLOWED_FILES, ALLOWED_URLS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

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
    now_s: Callable[[], float],
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Return the document at an http, https or file URL; with a body it is posted.

    The time limit, measured by now_s, is one of the whole: it also ends a provider that sends
    single bytes.
    """
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
    sock: Any = None
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    try:
        connection.connect()
        sock, connection.sock = connection.sock, None
        connection.sock = _TimedSocket(sock, now_s, now_s() + timeout_s)
        connection.request("GET" if body is None else "POST", target, body, dict(headers or {}))
        answer = connection.getresponse()
        data = answer.read(MAX_DOCUMENT_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchFailed(f"{shown}: {type(error).__name__}") from error
    finally:
        connection.close()
        if sock is not None:
            sock.close()
    if answer.status != http.client.OK:
        raise FetchFailed(f"{shown} answers with status {answer.status}", answer.status)
    return _bounded(shown, data)


class _TimedSocket:
    """The calls of a socket that http.client needs; all of them share one time limit."""

    def __init__(self, sock: Any, now_s: Callable[[], float], ends_s: float) -> None:
        self._sock = sock
        self._now_s = now_s
        self._ends_s = ends_s

    def sendall(self, data: bytes) -> None:
        """Send a request."""
        self._limited().sendall(data)

    def recv_into(self, buffer: Any) -> int:
        """Receive a part of the answer."""
        return int(self._limited().recv_into(buffer))

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the answer."""
        return io.BufferedReader(_Received(self))

    def close(self) -> None:
        """Do nothing: the answer is read after http.client has closed the connection."""

    def _limited(self) -> Any:
        left_s = self._ends_s - self._now_s()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._sock


class _Received(io.RawIOBase):
    """The bytes that arrive at a socket."""

    def __init__(self, sock: _TimedSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive into a buffer."""
        return self._sock.recv_into(buffer)


def _bounded(shown: str, data: bytes) -> bytes:
    if len(data) > MAX_DOCUMENT_BYTES:
        raise FetchFailed(f"{shown} is larger than {MAX_DOCUMENT_BYTES} bytes")
    return data
