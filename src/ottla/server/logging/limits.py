"""Limits of log lines: their number, and the length of their texts.

Lines of the node below INFO are all written.

Lines are of one kind when logger, level and message template are equal, and the client, which
lines about clients have as `extra={"client": …}`. What else tells kinds apart stands in
`extra={"limited_by": …}`, which is not written: denials are of one kind only if user, operation,
resource type and API are equal, too, so that no denial hides another user's. Suppressed lines are
counted, and the count is written. Each logger has a budget of kinds of its own: connections from
very many addresses, as one host has in an IPv6 network, leave the lines of the audit log alone.

Kafka: none.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

MAX_VALUE_CHARACTERS: Final = 1000
"""More than any valid topic name (249) and any name of a certificate that is used in practice."""
MAX_MESSAGE_CHARACTERS: Final = 4000
MAX_TRACEBACK_CHARACTERS: Final = 16_000
MAX_LISTED: Final = 5
"""Names, or texts of errors, that lines about one request have."""


def shortened(text: str, limit: int) -> str:
    """Return a text that is longer than a limit cut, with a mark and its length."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def bounded(value: object) -> object:
    """Return a value whose text is short as it is, any other as a text that is cut."""
    if isinstance(value, int | float):
        return value
    text = value if type(value) is str else str(value)
    if len(text) <= MAX_VALUE_CHARACTERS:
        return value
    return shortened(text, MAX_VALUE_CHARACTERS)


def message_of(record: logging.LogRecord) -> str:
    """Return a record's message, made of values that are cut."""
    args = record.args
    text = str(record.msg)
    if isinstance(args, Mapping):
        text %= {name: bounded(value) for name, value in args.items()}
    elif args:
        text %= tuple(map(bounded, args))
    return shortened(text, MAX_MESSAGE_CHARACTERS)


def listed(names: Sequence[str]) -> str:
    """Return the first names of a request, and the number of the others."""
    first = ", ".join(names[:MAX_LISTED])
    more = len(names) - MAX_LISTED
    return f"{first} and {more:,} more" if more > 0 else first


def escape(text: str) -> str:
    """Escape control characters, so that no value can forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


INTERVAL_MS: Final = 1000
MAX_KINDS: Final = 10_000
"""Most kinds of a logger: as many lines about clients it writes in a second at most."""
MAX_NODE_LINES: Final = 1000
"""Lines of a kind that name no client, a second: more than a node with many partitions writes about
each, less than a client can cause."""
_KIND_CHARACTERS: Final = 200
_OTHER_LINES: Final = "lines about other clients"


class LineKind(NamedTuple):
    """The common fields of the lines of one kind."""

    client: str | None
    """None for lines about the node."""
    logger: str
    level: int
    text: str
    limited_by: Hashable = None


class _Seen:
    """When a kind's interval began (ms), its first text, and its lines since."""

    __slots__ = ("began_ms", "suppressed", "text", "written")

    def __init__(self, began_ms: int, text: str) -> None:
        self.began_ms = began_ms
        self.text = text
        self.written = 1
        self.suppressed = 0


class _Kinds:
    """The kinds of one logger, in the order of their intervals."""

    __slots__ = ("sharing", "table")

    def __init__(self) -> None:
        self.table: dict[LineKind, _Seen] = {}
        self.sharing: Counter[Hashable] = Counter()
        """Number of kinds by `limited_by`."""


class LineLimit:
    """Decides which lines are written; remembers at most `max_kinds` kinds of each logger.

    Beyond that, lines of further kinds are counted by logger and level until a second is over. Two
    replace the oldest kind instead: lines about the node, and those whose `limited_by` no kind has.
    """

    def __init__(self, now_ms: Callable[[], int], *, max_kinds: int = MAX_KINDS) -> None:
        """`now_ms` is a monotonic clock."""
        self._now_ms = now_ms
        self._max_kinds = max_kinds
        self._loggers: dict[str, _Kinds] = {}
        self._others: Counter[tuple[str, int]] = Counter()
        self._others_since_ms = 0
        self._ended: list[tuple[LineKind, int]] = []

    def __len__(self) -> int:
        return sum(len(kinds.table) for kinds in self._loggers.values())

    def admits(self, kind: LineKind, write: Callable[[], str] | None = None) -> bool:
        """Whether a line of this kind may be written now; otherwise it is counted.

        `write` fills the kind's template for the line that reports the count.
        """
        now_ms = self._now_ms()
        kinds = self._loggers.get(kind.logger)
        if kinds is None:
            kinds = self._loggers[kind.logger] = _Kinds()
        seen = kinds.table.get(kind)
        if seen is not None:
            if now_ms - seen.began_ms < INTERVAL_MS:
                if kind.client is None and seen.written < MAX_NODE_LINES:
                    seen.written += 1
                    return True
                seen.suppressed += 1
                return False
            self._end(kinds, kind)
        elif len(kinds.table) >= self._max_kinds:
            oldest, last = next(iter(kinds.table.items()))
            is_first = kind.limited_by is not None and not kinds.sharing[kind.limited_by]
            replaces = kind.client is None or is_first
            if now_ms - last.began_ms < INTERVAL_MS and not replaces:
                if not self._others:
                    self._others_since_ms = now_ms
                self._others[kind.logger, kind.level] += 1
                return False
            self._end(kinds, oldest)
        text = kind.text if write is None else write()[:_KIND_CHARACTERS]
        kinds.table[kind] = _Seen(now_ms, text)
        kinds.sharing[kind.limited_by] += 1
        return True

    def _end(self, kinds: _Kinds, kind: LineKind) -> None:
        seen = kinds.table.pop(kind)
        kinds.sharing[kind.limited_by] -= 1
        if not kinds.sharing[kind.limited_by]:
            del kinds.sharing[kind.limited_by]
        if seen.suppressed:
            self._ended.append((kind._replace(text=seen.text), seen.suppressed))

    def take_suppressed(self, *, all_of_them: bool = False) -> list[tuple[LineKind, int]]:
        """Return and reset the kinds whose second is over, with their suppressed lines."""
        limit_ms = self._now_ms() - INTERVAL_MS
        for kinds in self._loggers.values():
            over: list[LineKind] = []
            for kind, seen in kinds.table.items():  # not copied: this runs for each line
                if seen.began_ms > limit_ms and not all_of_them:
                    break
                over.append(kind)
            for kind in over:
                self._end(kinds, kind)
        if self._others and (all_of_them or self._others_since_ms <= limit_ms):
            for (logger, level), count in self._others.items():
                self._ended.append((LineKind("any", logger, level, _OTHER_LINES), count))
            self._others.clear()
        ended, self._ended = self._ended, []
        return ended


class LimitedLines(logging.Handler):
    """Applies a `LineLimit`; a mix-in for logging handlers."""

    limit: LineLimit

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, after the counts of the kinds whose second is over."""
        client = record.__dict__.get("client")
        if client is None and record.levelno < logging.INFO:  # requested by who runs the node
            super().emit(record)
            return
        kind = LineKind(
            None if client is None else str(client)[:_KIND_CHARACTERS],
            record.name,
            record.levelno,
            str(record.msg)[:_KIND_CHARACTERS],
            record.__dict__.get("limited_by"),
        )
        if not self.limit.admits(kind, lambda: message_of(record)):
            return
        self._write_suppressed(self.limit.take_suppressed())
        super().emit(record)

    def report_suppressed(self, *, all_of_them: bool = False) -> None:
        """Write the counts that no later line has reported; called periodically."""
        self.acquire()
        try:
            self._write_suppressed(self.limit.take_suppressed(all_of_them=all_of_them))
        finally:
            self.release()

    def _write_suppressed(self, ended: list[tuple[LineKind, int]]) -> None:
        for kind, count in ended:
            text = f"… {count:,} more like it: {kind.text}"
            record = logging.LogRecord(kind.logger, kind.level, "", 0, text, None, None)
            if kind.client is not None:
                record.client = kind.client
            super().emit(record)

    def close(self) -> None:
        """Write all remaining counts."""
        self.report_suppressed(all_of_them=True)
        super().close()


class LimitedHandler(LimitedLines, logging.StreamHandler[TextIO]):
    """Writes limited lines to a stream."""

    def __init__(self, limit: LineLimit, stream: TextIO | None = None) -> None:
        self.limit = limit
        super().__init__(stream)


class RotatedFile(LimitedLines, RotatingFileHandler):
    """Writes limited lines to a file, which becomes FILE.1 when it has reached a size."""

    def __init__(self, limit: LineLimit, path: str, *, max_bytes: int, backups: int) -> None:
        self.limit = limit
        super().__init__(path, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")


class WatchedFile(LimitedLines, WatchedFileHandler):
    """Writes limited lines to a file, and to a new one when another program has moved it."""

    def __init__(self, limit: LineLimit, path: str) -> None:
        self.limit = limit
        super().__init__(path, encoding="utf-8")


def report_suppressed() -> None:
    """Write the counts of suppressed lines of all of Ottla's handlers."""
    for handler in logging.getLogger("ottla").handlers:
        if isinstance(handler, LimitedLines):
            handler.report_suppressed()
