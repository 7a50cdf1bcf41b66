"""Metrics of the log cleaner, by Kafka's names.

Kafka: the metrics of LogCleaner and LogCleanerManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metrics.families import Series, gauge, label_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.server.broker.log_cleaner import LogCleaner
    from ottla.storage.directories.log_dir import LogDirectory

_ONE = ("",)
_CLEANER = ("kafka.log", "LogCleaner")
_CHOICE = ("kafka.log", "LogCleanerManager")
_BUFFER = gauge(
    *_CLEANER,
    "max-buffer-utilization-percent",
    "How full the map of keys was in the last cleaning.",
)
_RECOPY = gauge(
    *_CLEANER, "cleaner-recopy-percent", "Bytes written of those read, in the last cleanings."
)
_TIME = gauge(*_CLEANER, "max-clean-time-secs", "How long the last cleaning took.")
_DELAY = gauge(
    *_CLEANER,
    "max-compaction-delay-secs",
    "How much longer than max.compaction.lag.ms a record has waited.",
)
_DEAD = gauge(*_CLEANER, "DeadThreadCount", "Cleaners ended by an unexpected error.")
_DIRTY = gauge(*_CHOICE, "max-dirty-percent", "The dirty share of the dirtiest log.")
_SINCE = gauge(
    *_CHOICE, "time-since-last-run-ms", "Time since a cleaner last searched for a log to clean."
)
_UNCLEANABLE = gauge(
    *_CHOICE, "uncleanable-partitions-count", "Partitions whose log cannot be cleaned."
)
_UNCLEANABLE_BYTES = gauge(*_CHOICE, "uncleanable-bytes", "Bytes in them that should be cleaned.")


def cleaner_series(cleaning: LogCleaner, directories: Sequence[LogDirectory]) -> Iterator[Series]:
    """Yield all series."""
    cleaner, figures = cleaning.cleaner, cleaning.figures()
    since_ms = max(cleaning.now_ms - cleaner.last_survey_ms, 0) if cleaner.last_survey_ms else 0
    yield Series(_BUFFER, _ONE, (figures.max_buffer_percent,))
    yield Series(_RECOPY, _ONE, (figures.recopy_percent,))
    yield Series(_TIME, _ONE, (figures.max_clean_s,))
    yield Series(_DELAY, _ONE, (cleaner.max_delay_ms // 1000,))
    yield Series(_DEAD, _ONE, (cleaning.dead_count,))
    yield Series(_DIRTY, _ONE, (int(100 * cleaner.max_ratio),))
    yield Series(_SINCE, _ONE, (since_ms,))
    labels = tuple(label_text(logDirectory=one.path) for one in directories)
    sizes = [cleaner.uncleanable_in(one) for one in directories]
    yield Series(_UNCLEANABLE, labels, [len(one) for one in sizes])
    yield Series(_UNCLEANABLE_BYTES, labels, [sum(one) for one in sizes])
