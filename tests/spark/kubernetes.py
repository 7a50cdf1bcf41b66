"""A stand-in for Kubernetes' API server: objects in memory, lists and watches over HTTP.

As much of it as Spark's scheduler asks for. A request that the rules of a Role do not allow is
refused, as by RBAC. Watches are HTTP only: a WebSocket is refused, and the client falls back.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
Listener = Callable[[str, Object], None]
_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>\w+)(/(?P<name>[^/]+))?")
_KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "services": "Service"}
POLL_S = 0.5


class Place(NamedTuple):
    """What a path names; `name` is "" for a collection."""

    namespace: str
    kind: str
    name: str


class Store:
    """All objects by place, and who is told of their changes."""

    def __init__(self) -> None:
        self.objects: dict[Place, Object] = {}
        self.lock = threading.RLock()
        self.listeners: list[Listener] = []
        self._versions = itertools.count(1)

    def put(self, place: Place, found: Object, change: str) -> Object:
        """Add or change an object; ADDED, MODIFIED or DELETED is told."""
        with self.lock:
            metadata = found.setdefault("metadata", {})
            metadata["resourceVersion"] = str(next(self._versions))
            self.objects[place] = found
            if change == "DELETED":
                del self.objects[place]
            for listener in list(self.listeners):
                listener(change, json.loads(json.dumps(found)))
        return found

    def create(self, namespace: str, kind: str, given: Object) -> Object:
        """Add an object of a client, with what the server fills in."""
        name = given["metadata"]["name"]
        number = next(self._versions)
        given["metadata"] |= {
            "namespace": namespace,
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        given.setdefault("apiVersion", "v1")
        given.setdefault("kind", _KINDS.get(kind, kind))
        if kind == "pods":
            given.setdefault("status", {"phase": "Pending"})
        return self.put(Place(namespace, kind, name), given, "ADDED")

    def update(self, place: Place, patch: Object) -> Object:
        """Merge a patch into an object."""
        with self.lock:
            return self.put(place, merged(self.objects[place], patch), "MODIFIED")

    def listed(self, place: Place, selector: str) -> list[Object]:
        """Return the objects of a collection whose labels are as the selector says."""
        with self.lock:
            return [
                one
                for where, one in self.objects.items()
                if where[:2] == place[:2] and selects(selector, one)
            ]


def merged(value: Any, patch: Any) -> Any:
    """Return a JSON merge patch applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    base = value if isinstance(value, dict) else {}
    found = {name: one for name, one in base.items() if patch.get(name, one) is not None}
    return found | {
        name: merged(base.get(name), one) for name, one in patch.items() if one is not None
    }


def selects(selector: str, one: Object) -> bool:
    """Whether labels fit a selector: `a=b`, `a!=b`, `a`, `!a`, `a in (b,c)`, `a notin (b,c)`."""
    labels = one["metadata"].get("labels", {})
    return all(_fits(labels, term.strip()) for term in re.split(r",(?![^(]*\))", selector) if term)


def _fits(labels: dict[str, str], term: str) -> bool:
    if found := re.fullmatch(r"(\S+) (in|notin) \(([^)]*)\)", term):
        name, word, values = found.groups()
        return (labels.get(name) in values.replace(" ", "").split(",")) == (word == "in")
    if found := re.fullmatch(r"([^=!]+)(!?)==?(.*)", term):
        return (labels.get(found[1]) == found[3]) != bool(found[2])
    return (term.lstrip("!") in labels) != term.startswith("!")


class ApiServer(ThreadingHTTPServer):
    """The server; `rules` are those of a Role, `asked` are the requests by verb and kind."""

    daemon_threads = True

    def __init__(self, rules: list[Object]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = Store()
        self.rules = rules
        self.asked: set[tuple[str, str]] = set()
        self.refused: set[tuple[str, str]] = set()
        self.ends = threading.Event()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def allows(self, verb: str, kind: str) -> bool:
        """Note a request; whether a rule allows it."""
        self.asked.add((verb, kind))
        found = any(verb in one["verbs"] and kind in one["resources"] for one in self.rules)
        if not found:
            self.refused.add((verb, kind))
        return found

    @contextmanager
    def running(self) -> Iterator[ApiServer]:
        """Serve in a thread until the end of the block."""
        thread = threading.Thread(target=self.serve_forever, args=[0.1])
        thread.start()
        try:
            yield self
        finally:
            self.ends.set()
            self.shutdown()
            thread.join()
            self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer

    def do_GET(self) -> None:
        place, options = self._asked()
        watched = options.get("watch") == "true"
        verb = "watch" if watched else "get" if place and place.name else "list"
        if place is None or not self._allowed(verb, place):
            return
        if self.headers.get("Upgrade"):
            self._fail(503, "no WebSocket")
        elif watched:
            self._watch(place, options)
        elif not place.name:
            items = self.server.store.listed(place, options.get("labelSelector", ""))
            kind = _KINDS.get(place.kind, place.kind)
            self._answer(200, {"apiVersion": "v1", "kind": f"{kind}List", "items": items})
        elif found := self.server.store.objects.get(place):
            self._answer(200, found)
        else:
            self._fail(404, f"{place.name} not found")

    def do_POST(self) -> None:
        place, _ = self._asked()
        body = self._body()
        if place is not None and self._allowed("create", place):
            self._answer(201, self.server.store.create(place.namespace, place.kind, body))

    def do_PATCH(self) -> None:
        place, _ = self._asked()
        body = self._body()
        if place is not None and self._allowed("patch", place):
            if place in self.server.store.objects:
                self._answer(200, self.server.store.update(place, body))
            else:
                self._fail(404, f"{place.name} not found")

    def do_DELETE(self) -> None:
        place, options = self._asked()
        self._body()
        verb = "delete" if place and place.name else "deletecollection"
        if place is None or not self._allowed(verb, place):
            return
        store = self.server.store
        with store.lock:
            found = store.listed(place, options.get("labelSelector", ""))
            names = [place.name] if place.name else [one["metadata"]["name"] for one in found]
            for name in names:
                if (where := place._replace(name=name)) in store.objects:
                    store.put(where, store.objects[where], "DELETED")
        self._answer(200, {"apiVersion": "v1", "kind": "Status", "status": "Success"})

    def _asked(self) -> tuple[Place | None, dict[str, str]]:
        parts = urlsplit(self.path)
        found = _PATH.fullmatch(parts.path)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if found is None:
            self._fail(404, f"no {parts.path}")
            return None, options
        name = found["name"] or ""
        if field := re.fullmatch(r"metadata\.name=(.*)", options.get("fieldSelector", "")):
            name = field[1]
        return Place(found["namespace"], found["kind"], name), options

    def _allowed(self, verb: str, place: Place) -> bool:
        allowed = self.server.allows(verb, place.kind)
        if not allowed:
            self._fail(403, f"cannot {verb} {place.kind}")
        return allowed

    def _body(self) -> Object:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found: Object = json.loads(text) if text else {}
        return found

    def _fail(self, code: int, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        self._answer(code, {**status, "message": message})

    def _answer(self, code: int, found: Object) -> None:
        body = json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, place: Place, options: dict[str, str]) -> None:
        """Send the changes of a collection, or of one object, as lines of JSON."""
        changes: Queue[tuple[str, Object]] = Queue()

        def listener(change: str, found: Object) -> None:
            changes.put((change, found))

        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        store = self.server.store
        with store.lock:
            store.listeners.append(listener)
        selector = options.get("labelSelector", "")
        with suppress(OSError):
            while not self.server.ends.is_set():
                with suppress(Empty):
                    change, found = changes.get(timeout=POLL_S)
                    if self._is_of(place, found) and selects(selector, found):
                        line = json.dumps({"type": change, "object": found}) + "\n"
                        self.wfile.write(line.encode())
                        self.wfile.flush()
        self.close_connection = True
        store.listeners.remove(listener)

    @staticmethod
    def _is_of(place: Place, found: Object) -> bool:
        metadata = found["metadata"]
        is_kind = found["kind"] == _KINDS.get(place.kind, place.kind)
        return is_kind and place.name in ("", metadata["name"])

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
        """Be quiet."""
