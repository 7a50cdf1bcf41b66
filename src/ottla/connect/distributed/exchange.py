"""Requests from worker to worker over HTTP.

Kafka: org.apache.kafka.connect.runtime.rest.RestClient.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from ottla.connect.distributed.signing import sign
from ottla.connect.errors import ConnectException

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from ottla.connect.distributed.signing import SessionKey

_TIMEOUT_S: Final = 90.0
"""As the herder's own limit of a request in Kafka."""
_ANSWER_BYTES: Final = 64 << 20
"""The longest answer of another worker: that of the whole cluster's connectors is shorter."""


def exchange(
    url: str,
    method: str,
    target: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    context: ssl.SSLContext | None = None,
) -> tuple[int, bytes, str | None]:
    """Send a request; return status, body and location of the answer.

    Raises ConnectException without an answer.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = (
        HTTPSConnection(host, parts.port, timeout=_TIMEOUT_S, context=context)
        if parts.scheme == "https"
        else HTTPConnection(host, parts.port, timeout=_TIMEOUT_S)
    )
    try:
        connection.request(method, target, body or None, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(_ANSWER_BYTES), answer.getheader("location")
    except (OSError, HTTPException) as error:
        text = f"IO Error trying to forward REST request: {error}"
        raise ConnectException(text) from error
    finally:
        connection.close()


def send_task_configs(
    url: str | None,
    key: SessionKey | None,
    algorithm: str,
    name: str,
    configs: Sequence[Mapping[str, str]],
    *,
    context: ssl.SSLContext | None = None,
) -> None:
    """Have the leader write the settings of a connector's tasks (KIP-507).

    Raises ConnectException if it does not.
    """
    if url is None or key is None:
        raise ConnectException("there is no leader, or no session key")
    body = json.dumps([dict(it) for it in configs], separators=(",", ":")).encode()
    headers = {"Content-Type": "application/json", **sign(key, body, algorithm)}
    target = f"/connectors/{quote(name, safe='')}/tasks?forward=true"
    status, text, _ = exchange(url, "POST", target, body, headers, context=context)
    if status >= 300:
        raise ConnectException(f"the leader answers {status}: {text[:200]!r}")
