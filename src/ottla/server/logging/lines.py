"""Log lines: their formats, the levels of loggers, and limits of their number and length.

Kafka: the log4j2 configuration of its scripts; org.apache.kafka.server.logger.LoggingController,
ConfigAdminManager's part for loggers.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from ottla.config.log_lines import (
    COMPONENTS,
    KAFKA_LOGGERS,
    LEVELS,
    ROOT,
    TRACE,
    LoggingSettings,
    parse_log_levels,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.server.system.timers import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

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


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
    "limited_by",
}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that the caller passed as `extra`, to be written."""
    return {key: bounded(value) for key, value in record.__dict__.items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    stamp = datetime.fromtimestamp(int(record.created), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}.{int(record.msecs):03d}Z"


class KeyValueFormatter(logging.Formatter):
    """`time level logger message key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback follows indented when there is one."""
        pairs = " ".join(
            f"{key}={json.dumps(escape(str(value)))}" for key, value in _fields(record).items()
        )
        line = f"{_time(record)} {record.levelname} {record.name} {escape(message_of(record))}"
        line = f"{line} {pairs}" if pairs else line
        if record.exc_info:
            traceback = self.formatException(record.exc_info)
            for traced in shortened(traceback, MAX_TRACEBACK_CHARACTERS).split("\n"):
                line += "\n  " + escape(traced)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object on each line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback is a field of it."""
        fields: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": message_of(record),
            **_fields(record),
        }
        if record.exc_info:
            traceback = self.formatException(record.exc_info)
            fields["traceback"] = shortened(traceback, MAX_TRACEBACK_CHARACTERS)
        return json.dumps(fields, default=str)


def configure_logging(settings: LoggingSettings | None = None) -> None:
    """Send Ottla's log lines where the settings say: to standard error, or to a file.

    With a file, standard error gets only warnings and errors. Lines of the HTTP library have the
    same handlers and format. OSError when the file cannot be opened.
    """
    settings = settings or LoggingSettings({}, {})
    logging.addLevelName(TRACE, "TRACE")
    formatter = JsonFormatter() if settings.log_format == "json" else KeyValueFormatter()
    handlers: list[logging.Handler] = [LimitedHandler(LineLimit(SystemClock().monotonic_ms))]
    if settings.log_file:
        handlers[0].setLevel(logging.WARNING)
        handlers.append(_file_handler(settings))
    for handler in handlers:
        handler.setFormatter(formatter)
    for name in (OTTLA, "uvicorn"):
        logger = logging.getLogger(name)
        for replaced in logger.handlers:
            if isinstance(replaced, LimitedLines):
                replaced.close()
        logger.handlers[:] = handlers
        logger.propagate = False
    for component, level in parse_log_levels(settings.log_level).items():
        logging.getLogger(logger_name(component)).setLevel(level)


def _file_handler(settings: LoggingSettings) -> logging.Handler:
    limit = LineLimit(SystemClock().monotonic_ms)
    path: str = settings.log_file
    if settings.log_file_max_bytes == 0:
        return WatchedFile(limit, path)
    size, backups = settings.log_file_max_bytes, settings.log_file_backups
    return RotatedFile(limit, path, max_bytes=size, backups=backups)


log = logging.getLogger("ottla.node")
OTTLA: Final = "ottla"
_LEVELS: Final[Mapping[str, int]] = {
    name: LEVELS[name] for name in ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
}
SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATION_NAMES: Final = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def logger_name(component: str) -> str:
    """Return the logger of a component, or of all for "root"."""
    return OTTLA if component == ROOT else f"{OTTLA}.{component}"


def logger_levels() -> dict[str, str]:
    """Return the level in force of every logger, by both of its names."""
    return {name: _level_name(logging.getLogger(own)) for name, own in _loggers().items()}


def _loggers() -> dict[str, str]:
    """Return the loggers' own names by all of their names."""
    known = {name for name in logging.root.manager.loggerDict if name.startswith(f"{OTTLA}.")}
    known.update(map(logger_name, COMPONENTS))
    kafka = {name: logger_name(component) for name, component in KAFKA_LOGGERS.items()}
    return {ROOT: OTTLA, **{name: name for name in sorted(known)}, **kafka}


def _level_name(logger: logging.Logger) -> str:
    """Return the name of the effective level, or of the next stricter one."""
    level = logger.getEffectiveLevel()
    return min(
        (name for name in _LEVELS if _LEVELS[name] >= level),
        key=lambda name: _LEVELS[name],
        default="FATAL",
    )


def change_levels(changes: Iterable[tuple[str, int, str | None]], *, only_check: bool) -> None:
    """Set (0) or reset (1) levels, all or none: (logger, operation, level).

    KafkaError INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for an operation that
    loggers do not have; UNKNOWN_SERVER_ERROR without a text, as Kafka, for an unknown one.
    """
    requested = list(changes)
    known = _loggers()
    for name, operation, level in requested:
        _check(name, operation, level, known)
    if only_check:
        return
    for name, operation, level in requested:
        logger = logging.getLogger(known[name])
        new = None if operation == DELETE else level
        logger.setLevel(logging.NOTSET if new is None else _LEVELS[new])
        changed = (name, _level_name(logger))
        log.info("log level of %s is now %s", *changed, extra={"event": "log.level"})


def _check(name: str, operation: int, level: str | None, known: Iterable[str]) -> None:
    if operation not in (SET, DELETE):
        if operation not in _OPERATION_NAMES:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "")
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{_OPERATION_NAMES[operation]} operation is not allowed for the BROKER_LOGGER "
            "resource",
        )
    if name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == SET and level not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(_LEVELS)}",
        )
    if operation == DELETE and name == ROOT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"
        )
