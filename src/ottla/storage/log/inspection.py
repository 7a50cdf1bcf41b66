"""Read-only check of a log: where its valid prefix ends and which valid batches follow the damage.

Every batch is read and its checksum verified. Recovery decides with it what may be truncated, and
`ottla log-repair` shows it. Further checks (`ottla verify`) look at the same valid batches.

Kafka: none; LogSegment.recover truncates at the first invalid batch.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.errors import CorruptMessage
from ottla.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from ottla.storage.batches import parse_header
from ottla.storage.directory import join
from ottla.storage.indexes.offset_index import MAX_RELATIVE_OFFSET
from ottla.storage.layout import LOG_SUFFIX, base_offset_of, segment_file_name
from ottla.storage.segments.segment_recovery import is_valid_batch, read_valid_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.storage.batches import BatchHeader
    from ottla.storage.directory import Directory, File

_CHUNK_BYTES = 1 << 20
_MAGIC_POSITION = 16
_LENGTH_POSITION = 8
_V2 = b"\x02"


class Damage(NamedTuple):
    """The first place where a log cannot be read."""

    path: str
    """The segment's file, relative to the log directory."""
    position: int
    offset: int
    """The first offset that cannot be read."""
    reason: str
    following_offset: int = -1
    """Base offset of the first valid batch after the damage, -1 when there is none."""
    following_batches: int = 0
    end_offset: int = -1
    """The offset after the last valid batch that follows the damage."""

    def __str__(self) -> str:
        text = f"{self.path} is damaged at byte {self.position} (offset {self.offset}):"
        return f"{text} {self.reason}"


class LogInspection(NamedTuple):
    """What was found in a log's segments."""

    start_offset: int
    """The base offset of the first segment, 0 without segments."""
    end_offset: int
    """The offset after the valid prefix."""
    epochs: tuple[tuple[int, int], ...]
    """(leader epoch, start offset) of the inspected valid prefix, in order."""
    damage: Damage | None

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch of the valid prefix, -1 without any."""
        return self.epochs[-1][0] if self.epochs else -1

    @property
    def reach(self) -> int:
        """The offset after the last valid batch, whether or not damage precedes it."""
        return max(self.end_offset, self.damage.end_offset if self.damage else -1)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of an offset, -1 when it was not inspected."""
        if not self.start_offset <= offset < self.end_offset:
            return -1
        epoch = -1
        for one, start in self.epochs:
            if start <= offset:
                epoch = one
        return epoch


class BatchVisitor(Protocol):
    """Looks at the valid batches of an inspected log, in order, up to the first damage."""

    def begin_segment(self, base_offset: int, size: int) -> None:
        """Begin a segment, empty ones too; size is the file's, in bytes."""

    def batch(self, header: BatchHeader, data: memoryview) -> None:
        """Take one batch of the segment; data are its bytes."""


def inspect_log(
    directory: Directory,
    subdirectory: str,
    *,
    from_offset: int = 0,
    may_have_gaps: bool,
    visitors: Sequence[BatchVisitor] = (),
) -> LogInspection:
    """Check all segments from the one that holds from_offset on; never raises CorruptMessage."""
    bases = base_offsets(directory, subdirectory)
    if not bases:
        return LogInspection(0, 0, (), None)
    first = 0
    while first + 1 < len(bases) and bases[first + 1] <= from_offset:
        first += 1
    inspector = _Inspector(directory, subdirectory, visitors, may_have_gaps=may_have_gaps)
    return inspector.run(bases, first)


def base_offsets(directory: Directory, subdirectory: str) -> list[int]:
    """Return the base offsets of a log's segments, in order."""
    if not directory.is_directory(subdirectory):
        return []
    found = [base_offset_of(name, LOG_SUFFIX) for name in directory.list(subdirectory)]
    return sorted(base_offset for base_offset in found if base_offset is not None)


class _Inspector:
    def __init__(
        self,
        directory: Directory,
        subdirectory: str,
        visitors: Sequence[BatchVisitor],
        *,
        may_have_gaps: bool,
    ) -> None:
        self._directory = directory
        self._subdirectory = subdirectory
        self._visitors = visitors
        self._may_have_gaps = may_have_gaps
        self._epochs: list[tuple[int, int]] = []
        self._next_offset = 0

    def run(self, bases: list[int], first: int) -> LogInspection:
        damage = None
        self._next_offset = bases[first]
        for number in range(first, len(bases)):
            path = self._path(bases[number])
            with closing(self._directory.open(path)) as file:
                damage = self._check(file, path, bases[number])
            if damage is not None:
                damage = self._with_followers(damage, bases[number:])
                break
        return LogInspection(bases[0], self._next_offset, tuple(self._epochs), damage)

    def _path(self, base_offset: int) -> str:
        return join(self._subdirectory, segment_file_name(base_offset, LOG_SUFFIX))

    def _check(self, file: File, path: str, base_offset: int) -> Damage | None:
        """Advance over one segment's valid batches; return the damage that ends them."""
        size, visitors = file.size(), self._visitors
        for visitor in visitors:
            visitor.begin_segment(base_offset, size)
        if size == 0:
            return None  # a new segment, or one of an interrupted roll
        reason = self._gap_before(base_offset)
        if reason:
            return Damage(path, 0, self._next_offset, reason)
        position = 0
        for header, data in read_valid_batches(file, size):
            reason = self._gap_before(header.base_offset)
            if not reason and 0 <= header.leader_epoch < self._last_epoch:
                reason = f"leader epoch {header.leader_epoch} after {self._last_epoch}"
            if reason:
                return Damage(path, position, self._next_offset, reason)
            if header.leader_epoch > self._last_epoch:
                self._epochs.append((header.leader_epoch, header.base_offset))
            self._next_offset = header.last_offset + 1
            position = header.position + header.size
            for visitor in visitors:
                visitor.batch(header, data)
        if position == size:
            return None
        return Damage(path, position, self._next_offset, _reason(file, position, size))

    @property
    def _last_epoch(self) -> int:
        return self._epochs[-1][0] if self._epochs else -1

    def _gap_before(self, base_offset: int) -> str:
        if base_offset < self._next_offset:
            return f"base offset {base_offset} instead of {self._next_offset}"
        if base_offset > self._next_offset and not self._may_have_gaps:
            return f"offsets {self._next_offset} to {base_offset - 1} are missing"
        return ""

    def _with_followers(self, damage: Damage, bases: list[int]) -> Damage:
        """Look for valid batches after the damage, in its segment and in those after it."""
        first, count, end = -1, 0, -1
        start = damage.position
        for base_offset in bases:
            # the offsets that a segment can hold exclude nearly all random bytes
            offsets = range(damage.offset, base_offset + MAX_RELATIVE_OFFSET + 1)
            with closing(self._directory.open(self._path(base_offset))) as file:
                for header in find_valid_batches(file, start, file.size(), offsets):
                    first = header.base_offset if first < 0 else first
                    count += 1
                    end = max(end, header.last_offset + 1)
            start = 0
        return damage._replace(following_offset=first, following_batches=count, end_offset=end)


def find_valid_batches(
    file: File, position: int, end: int, offsets: range
) -> Iterator[BatchHeader]:
    """Search for v2 batches with these base offsets and a valid checksum, at any byte."""
    while position + HEADER_BYTES <= end:
        for header, _ in read_valid_batches(file, end, position):
            if header.base_offset in offsets:
                yield header
            position = header.position + header.size
        position = _next_candidate(file, position + 1, end, offsets)


def _next_candidate(file: File, position: int, end: int, offsets: range) -> int:
    """Return where the next valid batch begins, or end."""
    while position + HEADER_BYTES <= end:
        chunk = memoryview(file.read(position, min(_CHUNK_BYTES, end - position)))
        magics = bytes(chunk)
        at = magics.find(_V2, _MAGIC_POSITION)
        while 0 <= at <= len(chunk) - HEADER_BYTES + _MAGIC_POSITION:
            start = at - _MAGIC_POSITION
            if _is_batch(file, chunk[start:], position + start, end, offsets):
                return position + start
            at = magics.find(_V2, at + 1)
        position += max(len(chunk) - HEADER_BYTES + 1, 1)
    return end


def _is_batch(file: File, view: memoryview, position: int, end: int, offsets: range) -> bool:
    size = int.from_bytes(view[_LENGTH_POSITION:LOG_OVERHEAD_BYTES], "big") + LOG_OVERHEAD_BYTES
    if not HEADER_BYTES <= size <= end - position:
        return False
    header = parse_header(view, 0, position)
    if header.base_offset not in offsets:
        return False
    data = view[:size] if size <= len(view) else memoryview(file.read(position, size))
    return is_valid_batch(header, data)


def _reason(file: File, position: int, end: int) -> str:
    """Describe why no valid batch begins at position."""
    head = file.read(position, min(HEADER_BYTES, end - position))
    if len(head) < HEADER_BYTES:
        return f"{len(head)} bytes, less than a batch header"
    try:
        header = parse_header(head, 0, position)
    except CorruptMessage as error:
        return str(error.message)
    if header.size < HEADER_BYTES and header.magic >= 2:
        return f"a batch of {header.size} bytes"
    if position + header.size > end:
        return f"a batch of {header.size} bytes of which {end - position} are there"
    return "the batch's checksum is wrong"
