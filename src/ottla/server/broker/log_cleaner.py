"""When the log cleaner works, and how much of the machine it may use.

log.cleaner.threads cleanings run at a time, each in slices. Between two slices the worker is free,
and the loop checks whether the cleaning should continue.

Kafka: LogCleaner.CleanerThread, Throttler.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.cleaner.cleaner import SLICE_BYTES, SMALLEST_BUFFER_BYTES, CleanerLimits
from ottla.storage.cleaner.log_cleaner_manager import CleaningProgress, LogCleanerManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.config.broker import BrokerConfig
    from ottla.purgatory.loop import Loop
    from ottla.purgatory.work import Work
    from ottla.server.system.environment import RunOnVolume
    from ottla.storage.cleaner.cleaner import Cleaner, CleanerStats
    from ottla.storage.cleaner.log_cleaner_manager import Survey
    from ottla.storage.log_set.log_set import LogSet
    from ottla.types import Uuid

THROTTLE_MS = 300
"""Longest slice at the rate of log.cleaner.io.max.bytes.per.second; pauses keep the rate."""


class CleaningFigures(NamedTuple):
    """Results of the cleaners' last cleanings, for Kafka's metrics; the maximum of all cleaners."""

    recopy_percent: int = 0
    max_clean_s: int = 0
    max_buffer_percent: int = 0


class LogCleaner:
    """Runs the cleaner of a node's logs by its timer and in its workers."""

    def __init__(
        self,
        logs: LogSet,
        settings: Callable[[], BrokerConfig],
        *,
        loop: Loop,
        run_on_volume: RunOnVolume,
        new_uuid: Callable[[], Uuid],
    ) -> None:
        """Take settings(), which returns those in force; new_uuid is the source of secret seeds."""
        self.cleaner = LogCleanerManager(logs)
        self._settings = settings
        self.loop = loop
        self._clock = loop.clock
        self._run_on_volume = run_on_volume
        self._new_uuid = new_uuid
        self._is_stopped = True
        self._cleaners: list[_Cleaner] = []
        self.dead_count = 0
        """Cleaners ended by an unexpected error; they do not start again, as in Kafka."""

    def start(self) -> None:
        """Begin to look for logs to clean."""
        self._is_stopped = False
        self.settings_changed(self._settings())

    def stop(self) -> None:
        """Begin no further slice."""
        self._is_stopped = True

    def settings_changed(self, config: BrokerConfig) -> None:
        """Start missing cleaners; surplus ones end after their slice."""
        count = config.log_cleaner_threads if config.log_cleaner_enable else 0
        while len(self._cleaners) < count and not self._is_stopped:
            cleaner = _Cleaner(self)
            self._cleaners.append(cleaner)
            cleaner.look(0)
        del self._cleaners[count:]

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._settings()

    @property
    def now_ms(self) -> int:
        """The wall clock: records are as old as their timestamps say."""
        return self._clock.now_ms()

    @property
    def monotonic_ms(self) -> int:
        """The clock that measures slices: a step of the wall clock must not pause a cleaner."""
        return self._clock.monotonic_ms()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Count a cleaner that an unexpected error ends."""
        try:
            yield
        except BaseException:
            self.dead_count += 1
            raise

    def should_end(self, cleaner: _Cleaner) -> bool:
        """Whether a cleaner should end."""
        return self._is_stopped or cleaner not in self._cleaners

    def limits(self) -> CleanerLimits:
        """Return the share of one cleaner in what all may use."""
        config, count = self.config, max(len(self._cleaners), 1)
        return CleanerLimits(
            min(config.log_cleaner_dedupe_buffer_size // count, 0x7FFF_FFFF),
            config.log_cleaner_io_buffer_load_factor,
            max(config.log_cleaner_io_buffer_size // count // 2, SMALLEST_BUFFER_BYTES),
        )

    @property
    def bytes_per_s(self) -> float:
        """The rate at which one cleaner may read and write."""
        total = self.config.log_cleaner_io_max_bytes_per_second
        return max(total, 1.0) / max(len(self._cleaners), 1)

    def begin(self, survey: Survey) -> Cleaner | None:
        """Begin to clean what a survey found."""
        self.cleaner.surveyed(survey)
        if survey.best is None:
            return None
        seed = int.from_bytes(self._new_uuid())
        return self.cleaner.begin(survey.best, self.limits(), now_ms=self.now_ms, seed=seed)

    def later(self, delay_ms: int, call: Callable[[int], None]) -> None:
        """Call call(time) after a delay."""
        self.loop.timer.add(self._clock.monotonic_ms() + delay_ms, call)

    def run(self, cleaning: Cleaner, size: int, done: Callable[[Exception | None], None]) -> None:
        """Run a slice in a worker, then done(error)."""
        self._run_on_volume(
            cleaning.volume,
            lambda: cleaning.run(size),
            lambda _size, error: done(error),
        )

    def write_checkpoints(self) -> None:
        """Write `cleaner-offset-checkpoint` where it has changed."""
        for job in self.cleaner.take_jobs():
            self._run_on_volume(job.volume, job.run, lambda _none, error, job=job: job.done(error))  # type: ignore[misc] # a lambda's default binds the loop's value

    def figures(self) -> CleaningFigures:
        """Return what the last cleaning of each cleaner did."""
        stats = [cleaner.last for cleaner in self._cleaners if cleaner.last is not None]
        if not stats:
            return CleaningFigures()
        read = sum(stat.bytes_read for stat in stats)
        return CleaningFigures(
            100 * sum(stat.bytes_written for stat in stats) // max(read, 1),
            max(stat.elapsed_ms for stat in stats) // 1000,
            int(100 * max(stat.map_utilization for stat in stats)),
        )


class _Cleaner:
    """One of the cleaners: it looks for a log, cleans it, and looks again."""

    def __init__(self, owner: LogCleaner) -> None:
        self._owner = owner
        self.last: CleanerStats | None = None
        """Of the last cleaning that was completed."""

    def look(self, _now_ms: int) -> None:
        """Look for a log to clean, and clean it."""
        self._owner.loop.worker.run(self._look()).on_done(lambda done: done.value)

    def _look(self) -> Work[None]:
        owner = self._owner
        with owner.watch():
            if owner.should_end(self):
                return
            survey = owner.cleaner.survey(owner.now_ms)
            for _ in survey.examine():
                yield
                if owner.should_end(self):
                    return
            owner.write_checkpoints()
            cleaning = owner.begin(survey)
            if cleaning is None:
                owner.later(max(owner.config.log_cleaner_backoff_ms, 1), self.look)
            else:
                self._run(cleaning)

    def _run(self, cleaning: Cleaner) -> None:
        owner = self._owner
        if owner.should_end(self):
            owner.cleaner.abort(cleaning)
            return
        size = int(min(SLICE_BYTES, max(owner.bytes_per_s * THROTTLE_MS / 1000, 1)))
        begin_ms, before = owner.monotonic_ms, cleaning.stats.total_bytes

        def done(error: Exception | None) -> None:
            elapsed_ms = owner.monotonic_ms - begin_ms
            allowed_ms = (cleaning.stats.total_bytes - before) * 1000 / owner.bytes_per_s
            self._done(cleaning, error, max(int(allowed_ms) - elapsed_ms, 0))

        owner.run(cleaning, size, done)

    def _done(self, cleaning: Cleaner, error: Exception | None, throttle_time_ms: int) -> None:
        with self._owner.watch():
            self._go_on(cleaning, error, throttle_time_ms)

    def _go_on(self, cleaning: Cleaner, error: Exception | None, throttle_time_ms: int) -> None:
        owner = self._owner
        progress = owner.cleaner.advance(cleaning, error, owner.now_ms)
        if progress is CleaningProgress.GOES_ON:
            if throttle_time_ms:
                owner.later(throttle_time_ms, lambda _now_ms: self._run(cleaning))
            else:
                self._run(cleaning)
        elif progress is CleaningProgress.CLEANED:
            self.last = cleaning.stats
            owner.later(0, self.look)
        else:
            owner.later(max(owner.config.log_cleaner_backoff_ms, 1), self.look)
