"""The foreign-key join of two tables.

Kafka: kstream.internals.foreignkeyjoin (KIP-213, KIP-962).

A left row subscribes at the right table's partition with its key, its foreign key and a hash of its
value. The right side answers each subscription, and all subscriptions of a row that changes. The
left side joins an answer if its hash is still that of the row.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.formats.primitives import Packing
from ottla.streams.data.serdes import Serde
from ottla.streams.processors.processor import Processor
from ottla.streams.processors.tables import OUT_OF_ORDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.streams.data.records import Change, Record
    from ottla.streams.processors.processor import ProcessorContext
    from ottla.streams.processors.tables import TableView

_HASH_SIZE: Final = 16
_HEAD = Packing(">Bi?")
_LENGTH = Packing(">I")


class Instruction(IntEnum):
    """What the right side does with a subscription."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class ForeignKeySubscription(NamedTuple):
    """A left row's subscription; `row_hash` is None for a row that was deleted."""

    instruction: Instruction
    partition: int
    row_hash: bytes | None
    key: bytes


class Answer(NamedTuple):
    """The right row for a subscription, in bytes."""

    partition: int
    row_hash: bytes | None
    value: bytes | None


def subscription_serde() -> Serde:
    """Return the serde of subscriptions."""

    def write(value: ForeignKeySubscription) -> bytes:
        head = _HEAD.pack(value.instruction, value.partition, value.row_hash is not None)
        return head + (value.row_hash or b"") + value.key

    def read(data: bytes) -> ForeignKeySubscription:
        number, partition, has_hash = _HEAD.unpack_from(data)
        end = _HEAD.size + (_HASH_SIZE if has_hash else 0)
        row_hash = data[_HEAD.size : end] if has_hash else None
        return ForeignKeySubscription(Instruction(number), partition, row_hash, data[end:])

    return Serde("subscription", write, read)


def answer_serde() -> Serde:
    """Return the serde of answers."""

    def write(value: Answer) -> bytes:
        head = _HEAD.pack(value.value is not None, value.partition, value.row_hash is not None)
        return head + (value.row_hash or b"") + (value.value or b"")

    def read(data: bytes) -> Answer:
        has_value, partition, has_hash = _HEAD.unpack_from(data)
        end = _HEAD.size + (_HASH_SIZE if has_hash else 0)
        row_hash = data[_HEAD.size : end] if has_hash else None
        return Answer(partition, row_hash, data[end:] if has_value else None)

    return Serde("answer", write, read)


def _row_hash(data: bytes | None) -> bytes | None:
    return None if data is None else blake2b(data, digest_size=_HASH_SIZE).digest()


def _place(foreign_key: bytes, key: bytes = b"") -> bytes:
    return _LENGTH.pack(len(foreign_key)) + foreign_key + key


class Subscribe(Processor):
    """Sends the subscriptions of changed left rows."""

    def __init__(
        self,
        foreign_key_of: Callable[[Any, Any], Any],
        serdes: tuple[Serde, Serde, Serde],
        *,
        is_left: bool,
        is_versioned: bool = False,
    ) -> None:
        self._foreign_key_of, self._is_left = foreign_key_of, is_left
        self._is_versioned = is_versioned
        self._key, self._value, self._foreign_key = serdes

    def process(self, record: Record) -> None:
        """Process a change of the left table."""
        change: Change = record.value
        if self._is_versioned and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        old = None if change.old is None else self._foreign_key_of(record.key, change.old)
        new = None if change.new is None else self._foreign_key_of(record.key, change.new)
        changed = self._foreign_key.serialize(old) != self._foreign_key.serialize(new)
        if self._is_left:
            self._process_left(record, old, new, changed=changed)
        elif change.new is None or new is None:
            if old is not None:
                self._send(record, old, Instruction.DELETE_KEY_AND_PROPAGATE)
        elif old is not None and changed:
            self._send(record, old, Instruction.DELETE_KEY_NO_PROPAGATE)
            self._send(record, new, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
        else:
            self._send(record, new, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)

    def _process_left(self, record: Record, old: Any, new: Any, *, changed: bool) -> None:
        if record.value.old is None and record.value.new is None:
            return
        if old is not None and changed:
            self._send(record, old, Instruction.DELETE_KEY_NO_PROPAGATE)
        self._send(record, new, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)

    def _send(self, record: Record, foreign_key: Any, instruction: Instruction) -> None:
        metadata = self.context.record_metadata()
        row_hash = _row_hash(self._value.serialize(record.value.new))
        key = self._key.serialize(record.key) or b""
        partition = 0 if metadata is None else metadata.partition
        sent = ForeignKeySubscription(instruction, partition, row_hash, key)
        self.context.forward(record.with_key(foreign_key).with_value(sent))


class _RightSide(Processor):
    """Base of the processors at the right table: its serdes and the subscriptions."""

    def __init__(self, store: str | None, serdes: tuple[Serde, Serde]) -> None:
        self._store_name = store
        self._foreign_key, self._value = serdes
        self._store: Any = None

    def init(self, context: ProcessorContext) -> None:
        """Open the store of subscriptions."""
        super().init(context)
        if self._store_name is not None:
            self._store = context.get_state_store(self._store_name)

    def process(self, record: Record) -> None:
        """Process a record."""
        raise NotImplementedError

    def _answer(self, record: Record, to: ForeignKeySubscription, value: Any) -> None:
        sent = Answer(to.partition, to.row_hash, self._value.serialize(value))
        self.context.forward(record.with_key(to.key).with_value(sent))


class ReceiveSubscription(_RightSide):
    """Stores or deletes a subscription."""

    def process(self, record: Record) -> None:
        """Process a subscription."""
        sent: ForeignKeySubscription = record.value
        if record.key is None:
            if sent.instruction is Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                self.context.forward(record)
            return
        place = _place(self._foreign_key.serialize(record.key) or b"", sent.key)
        if sent.instruction <= Instruction.DELETE_KEY_AND_PROPAGATE:
            self._store.delete(place)
        else:
            self._store.put(place, sent)
        self.context.forward(record)


class AnswerSubscription(_RightSide):
    """Answers a subscription with the right row of its foreign key."""

    def __init__(self, serdes: tuple[Serde, Serde], right: TableView) -> None:
        super().__init__(None, serdes)
        self._right = right

    def process(self, record: Record) -> None:
        """Process a subscription."""
        sent: ForeignKeySubscription = record.value
        row = None if record.key is None else self._right.get(self.context, record.key)
        if row is not None:
            record = record.with_timestamp(max(record.timestamp, row.timestamp))
        value = None if row is None else row.value
        if sent.instruction is Instruction.DELETE_KEY_AND_PROPAGATE:
            self._answer(record, sent, None)
        elif sent.instruction is Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE or (
            sent.instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE and row is not None
        ):
            self._answer(record, sent, value)


class AnswerAll(_RightSide):
    """Answers all subscriptions of a right row that changes."""

    def __init__(
        self, store: str, serdes: tuple[Serde, Serde], *, is_versioned: bool = False
    ) -> None:
        super().__init__(store, serdes)
        self._is_versioned = is_versioned

    def process(self, record: Record) -> None:
        """Process a change of the right table."""
        if record.key is None or (self._is_versioned and not record.value.is_latest):
            self.context.drop("null key of a table" if record.key is None else OUT_OF_ORDER)
            return
        prefix = _place(self._foreign_key.serialize(record.key) or b"")
        for _, sent in self._store.prefix_scan(prefix):
            self._answer(record, sent, record.value.new)


class JoinAnswer(Processor):
    """Joins an answer with the left row, if that is still the one that subscribed."""

    def __init__(
        self,
        left: TableView,
        joiner: Callable[[Any, Any], Any],
        serdes: tuple[Serde, Serde, Serde],
        *,
        is_left: bool,
    ) -> None:
        self._left, self._joiner, self._is_left = left, joiner, is_left
        self._key, self._value, self._other = serdes

    def process(self, record: Record) -> None:
        """Process an answer."""
        key, answer = self._key.deserialize(record.key), record.value
        row = self._left.get(self.context, key)
        value = None if row is None else row.value
        if answer.row_hash != _row_hash(self._value.serialize(value)):
            self.context.drop("the row has changed since it subscribed")
            return
        other = self._other.deserialize(answer.value)
        joined = None
        if value is not None and (other is not None or self._is_left):
            joined = self._joiner(value, other)
        self.context.forward(record.with_key(key).with_value(joined))
