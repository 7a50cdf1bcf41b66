"""Decodes a large message a slice at a time, so that other clients are served in between.

`protocol.codec` decodes a message in one call. This module reads the same bytes into the same
object with the walker's own functions, but arrays of structs and texts are read by generators,
which yield whenever a slice of elements has been made. Its results equal the codec's
(tests/protocol/test_sliced_decoding.py).

Kafka: none; there each request is decoded by one of num.network.threads.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import CorruptMessage
from ottla.protocol import walker
from ottla.protocol.plans import plan_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from ottla.protocol.schema import StructMeta

_TEXT: Final = walker.KINDS["str"]
_STRUCT: Final = walker.KINDS["struct"]
_new_object: Final = object.__new__
_plan: Final = cache(plan_of)


class SlicedDecoding:
    """One message that is being decoded."""

    def __init__(
        self, cls: StructMeta, version: int, source: memoryview, position: int, allowance: int
    ) -> None:
        """Raise TooManyElements in `run` for a message that announces more than the allowance."""
        self._name = f"{cls.__name__} v{version}"
        self._plan = _plan(cls, version)
        self._reader = walker.reader_at(source, position, len(source), allowance)
        self._made = 0
        self._slice_end = 0

    def run(self, per_slice: int) -> Generator[None, None, Any]:
        """Return the message; yields after each `per_slice` elements."""
        self._slice_end = per_slice
        steps = self._struct(self._plan)
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
                self._slice_end = self._made + per_slice
                yield
        except IndexError as error:
            raise CorruptMessage(f"{self._name} ends early: {error}") from error

    def _struct(self, plan: walker.Plan) -> Generator[None, None, Any]:
        reader = self._reader
        message = _new_object(plan.cls)
        for step in plan.absent:
            setattr(message, step.name, walker.default_of(step))
        for step in plan.steps:
            if step.is_array and step.kind in (_STRUCT, _TEXT):
                value = yield from self._array(step)
            else:
                before = reader.allowance
                value = walker.read_field(reader, step)
                self._made += before - reader.allowance
            setattr(message, step.name, value)
        if plan.flexible:
            count = reader.uvarint()
            if count:
                before = reader.allowance
                message = walker.read_tags(reader, plan, message, count)
                self._made += before - reader.allowance
        return message

    def _array(self, step: walker.Step) -> Generator[None, None, Any]:
        reader = self._reader
        length = walker.read_length(reader, step.compact, 4)
        if length < 0:
            return walker.null_of(step)
        if length * step.smallest > reader.end - reader.position:
            raise walker.too_many(step)
        reader.charge(length)
        items: list[Any] = []
        plan = step.plan
        nested = plan if plan is not None and any(one.is_array for one in plan.steps) else None
        while len(items) < length:
            if nested is not None:
                items.append((yield from self._struct(nested)))
                self._made += 1
            else:
                count = min(length - len(items), max(1, self._slice_end - self._made))
                before = reader.allowance
                walker.read_items(reader, step, items, count)
                self._made += count + before - reader.allowance
            if self._made >= self._slice_end:
                yield
        return items
