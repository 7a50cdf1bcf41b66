"""Files of HDFS by the REST protocol of its NameNodes, which needs no library of Hadoop's.

Kafka: none; Hadoop: org.apache.hadoop.hdfs.web.WebHdfsFileSystem.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from ottla.spark.hadoop_settings import hadoop_user

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S: Final = 60.0
ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
"""The files of a checkpoint that are read here have a few kilobytes."""
_PORTS: Final = {"http": 9870, "https": 9871}
_ANY_HOST: Final = ("", "0.0.0.0")  # noqa: S104 - compared only
_STANDBY: Final = "StandbyException"
_MISSING: Final = "FileNotFoundException"


class NameNode(NamedTuple):
    """The address of a NameNode's web server."""

    scheme: str
    host: str
    port: int


_active: Final[dict[tuple[NameNode, ...], NameNode]] = {}
"""Of each cluster the NameNode that was active last: one that is away may cost TIMEOUT_S."""


class RefusedByHdfs(OSError):
    """HDFS has answered with an error; `kind` is Java's class of it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message.partition(chr(10))[0]}")
        self.kind = kind


class WebHdfs:
    """The files of one cluster."""

    def __init__(self, authority: str, settings: Mapping[str, str]) -> None:
        """Take the authority of an `hdfs://` URI: a NameNode's RPC address, or a nameservice.

        ValueError where logins are Kerberos'.
        """
        if settings.get("hadoop.security.authentication", "simple") != "simple":
            raise ValueError("HDFS with Kerberos is not supported here")
        self._nodes = tuple(name_nodes(authority, settings))
        self._user = hadoop_user()

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; none if there is no such directory."""
        answer = self._call("GET", directory, "LISTSTATUS")
        if answer is None:
            return []
        try:
            statuses = json.loads(answer)["FileStatuses"]["FileStatus"]
            return [status["pathSuffix"] for status in statuses]
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"no listing of HDFS: {answer[:200]!r}") from error

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None if there is none."""
        return self._call("GET", path, "OPEN")

    def write(self, path: str, content: bytes) -> None:
        """Write a file and the directories above it; one of that name is replaced."""
        self._call("PUT", path, "CREATE", content, overwrite="true")

    def _call(
        self, method: str, path: str, operation: str, content: bytes = b"", **given: str
    ) -> bytes | None:
        """Ask the active NameNode; None for a missing file to read. OSError if none answers."""
        query = urlencode({"op": operation, "user.name": self._user, **given})
        target = f"/webhdfs/v1{quote(path)}?{query}"
        failure: OSError | None = None
        for node in self._in_order():
            try:
                found = _answer(node, method, target, content)
            except RefusedByHdfs as error:
                if error.kind == _STANDBY:
                    failure = error
                    continue
                _active[self._nodes] = node
                if error.kind == _MISSING and method == "GET":
                    return None
                raise
            except OSError as error:
                failure = OSError(f"{_named(node)}: {error}")
            else:
                _active[self._nodes] = node
                return found
        assert failure is not None
        raise failure

    def _in_order(self) -> list[NameNode]:
        """Return the NameNodes, the one that was active last first."""
        last = _active.get(self._nodes)
        return sorted(self._nodes, key=lambda node: node != last)


def _named(node: NameNode) -> str:
    return (
        f"the NameNode of HDFS at {node.scheme}://{node.host}:{node.port} "
        f"(dfs.namenode.{node.scheme}-address)"
    )


def name_nodes(authority: str, settings: Mapping[str, str]) -> list[NameNode]:
    """Return the web servers of the NameNodes, by hdfs-site.xml; names are lower-cased."""
    scheme = "https" if settings.get("dfs.http.policy", "").upper() == "HTTPS_ONLY" else "http"
    host = authority.rpartition("@")[2].partition(":")[0]
    key = f"dfs.namenode.{scheme}-address"
    ids = [one.strip() for one in settings.get(f"dfs.ha.namenodes.{host}".lower(), "").split(",")]
    keys = [f"{key}.{host}.{one}".lower() for one in ids if one] or [key]
    return [_node(scheme, settings.get(one, ""), host) for one in keys]


def _node(scheme: str, address: str, default: str) -> NameNode:
    host, _, port = address.rpartition(":")
    chosen = default if host in _ANY_HOST else host
    return NameNode(scheme, chosen, int(port) if port else _PORTS[scheme])


def _answer(node: NameNode, method: str, target: str, content: bytes) -> bytes:
    """Send a request; a NameNode redirects those for contents to a DataNode."""
    status, headers, body = _exchange(node, method, target, None)
    if status in (302, 307):
        other, target = _data_node(node.scheme, headers["Location"] or "")
        status, _, body = _exchange(other, method, target, content)
    elif method == "PUT" and status < 300:
        raise OSError(f"HDFS has not asked for the contents of the file: HTTP {status}")
    if status >= 300:
        raise _refused(status, body)
    return body


def _data_node(scheme: str, location: str) -> tuple[NameNode, str]:
    """Return where a redirect leads; OSError for another protocol, which may be without TLS."""
    try:
        place = urlsplit(location)
        port = place.port or _PORTS[scheme]
    except ValueError as error:
        raise OSError(f"HDFS redirects to no address: {error}") from error
    if place.scheme != scheme or not place.hostname:
        raise OSError(f"HDFS redirects to {place.scheme}://{place.netloc}, not to {scheme}")
    return NameNode(scheme, place.hostname, port), f"{place.path}?{place.query}"


def _exchange(
    node: NameNode, method: str, target: str, content: bytes | None
) -> tuple[int, Any, bytes]:
    kind = HTTPSConnection if node.scheme == "https" else HTTPConnection
    connection = kind(node.host, node.port, timeout=TIMEOUT_S)
    try:
        connection.request(method, target, body=content or None)
        answer = connection.getresponse()
        body = answer.read(ANSWER_MAX_BYTES + 1)
    except HTTPException as error:
        raise OSError(f"no answer of HTTP: {error!r}") from error
    finally:
        connection.close()
    if len(body) > ANSWER_MAX_BYTES:
        raise OSError(f"an answer of HDFS has more than {ANSWER_MAX_BYTES} bytes")
    return answer.status, answer.headers, body


def _refused(status: int, body: bytes) -> RefusedByHdfs:
    try:
        found = json.loads(body)["RemoteException"]
        return RefusedByHdfs(found["exception"], found["message"])
    except (ValueError, KeyError, TypeError):
        return RefusedByHdfs(f"HTTP {status}", body[:200].decode("utf-8", "replace"))
