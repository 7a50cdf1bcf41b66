"""The largest requests of each API, built from its schema, and the work of the turns they take.

Work is counted in calls of functions, Python's and C's, which is the same in every run; one takes
some 0.2 µs with what is around it, so that a turn of MAX_CALLS takes about 10 ms.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from ottla.protocol import frames
from ottla.security.principal import ANONYMOUS
from ottla.server.requests.api import served_apis
from ottla.server.requests.dispatch import Dispatcher
from ottla.server.requests.parts import max_elements
from ottla.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.protocol.schema import Field, StructMeta
    from ottla.server.node.node import Node

MAX_CALLS: Final = 50_000
_OF_THE_PATH: Final = 10
"""Elements of a request besides those of its innermost array."""
Path = tuple["Field", ...]


def array_paths(cls: StructMeta, version: int, before: Path = ()) -> Iterator[Path]:
    """Yield the way to each array of a message at a version."""
    for field in cls.fields:
        if version not in field.versions:
            continue
        if field.is_array:
            yield (*before, field)
        if field.struct is not None:
            yield from array_paths(field.struct, version, (*before, field))


def filled(cls: Any, path: Path, count: int, topic: str) -> Any:
    """Return a message whose innermost array of a path has so many elements."""
    message = usual(cls, topic, 0)
    field = path[0]
    if len(path) > 1:
        inner = filled(field.struct, path[1:], count, topic)
        value: Any = [inner] if field.is_array else inner
    elif field.struct is not None:
        value = [usual(field.struct, topic, number) for number in range(count)]
    else:
        value = [single(field, topic, number) for number in range(count)]
    setattr(message, field.name, value)
    if hasattr(message, "acks"):
        message.acks = 1
    return message


def usual(cls: Any, topic: str, number: int) -> Any:
    """Return a struct with values of its own, and empty arrays."""
    message = cls()
    for field in cls.fields:
        if field.is_array:
            if field.default is None or getattr(message, field.name) is None:
                setattr(message, field.name, None if field.default is None else [])
        elif field.struct is None and field.default in {0, "", b"", Uuid()} and not field.nullable:
            setattr(message, field.name, single(field, topic, number))
    return message


def single(field: Field, topic: str, number: int) -> Any:
    """Return a value of a field: names differ, topics exist now and again."""
    kind = field.element
    if kind == "str":
        return topic if "topic" in field.name and number % 2 else f"n{number}"
    if kind in {"bytes", "Records"}:
        return b""
    if kind == "Uuid":
        return Uuid(number.to_bytes(16, "big"))
    if kind == "bool":
        return False
    if kind == "float64":
        return float(number)
    return min(number, 0x7FFF if kind == "int16" else 0x7F if "8" in kind else number)


class FakeConnection:
    """Stands in for a client's connection; remembers that it was answered."""

    def __init__(self) -> None:
        self.is_answered = False
        self.is_closed = self.is_in_login = False
        self.peer_host, self.peer_port = "127.0.0.1", 1
        self.listener_name = "PLAINTEXT"
        self.connection_id = "1"
        self.attachment: object = None
        self.principal = ANONYMOUS

    def respond(self, *_answer: object) -> None:
        self.is_answered = True

    respond_bytes = request_done = respond

    def finish(self) -> None:
        self.is_answered = self.is_closed = True


class CallCounter:
    """Counts the calls in each turn of a node's loop, and keeps the largest number.

    Meanwhile a turn has one step of the node's works: how many short ones fit in a turn's time
    besides a long one depends on how fast the machine is.
    """

    def __init__(self, node: Node) -> None:
        self.most = 0
        self.where = ""
        self._calls = 0
        watch: Any = node._resources.turns
        self._run = watch.run
        watch.run = self.turn
        self._max_steps, node.broker.worker.max_steps = node.broker.worker.max_steps, 1

    def end(self, node: Node) -> None:
        """End the counting, on the node's loop."""
        watch: Any = node._resources.turns
        assert watch.run == self.turn
        del watch.run
        node.broker.worker.max_steps = self._max_steps

    def _count(self, _frame: object, event: str, _argument: object) -> None:
        if event in {"call", "c_call"}:
            self._calls += 1

    def turn(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Run a turn and count."""
        self._calls = 0
        sys.setprofile(self._count)
        try:
            self._run(callback, *arguments)
        finally:
            sys.setprofile(None)
            if self._calls > self.most:
                self.most, self.where = self._calls, repr(callback)


def send(connection: Any, frame: memoryview, kind: str, node: Node) -> CallCounter:
    """Let a dispatcher handle a request, in turns that are counted until the counter's end."""
    dispatcher = Dispatcher(node.broker, kind, lambda: 0.0, None)
    counter = CallCounter(node)
    counter.turn(dispatcher.handle_frame, connection, frame)
    return counter


def largest(kind: str, most: int | None, topic: str) -> Iterator[tuple[str, memoryview]]:
    """Yield the name and the frame of each request, at the newest version of each API.

    most bounds the elements; None is as many as the API may have.
    """
    for api in served_apis(kind).values():
        version = api.highest
        count = max_elements(api.key) - _OF_THE_PATH
        count = count if most is None else min(count, most)
        for path in array_paths(api.request, version):
            message = filled(api.request, path, count, topic)
            parts: list[Any] = frames.encode_request(message, version, 5, "me")
            name = f"{api.key.name} {'.'.join(field.name for field in path)}"
            yield name, memoryview(bytearray(b"".join(parts)[4:]))
