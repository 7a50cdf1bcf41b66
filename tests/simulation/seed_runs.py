"""Runs many seeds of a simulation from a command line.

Prints progress, events per second, a digest of all traces and, for a seed that fails, the command
that replays it.
"""

from __future__ import annotations

import argparse
import logging
import time
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class SeedFailed(AssertionError):
    """An invariant does not hold; `events` is the number of events until then."""

    def __init__(self, seed: int, events: int, error: Exception) -> None:
        super().__init__(f"seed {seed}, event {events}: {type(error).__name__}: {error}")
        self.seed = seed
        self.events = events


class SeedResult(NamedTuple):
    """What a seed did."""

    events: int
    trace: object
    """Its digest."""
    acknowledged: int | None = None
    """Records, where there are any."""


class SeedRuns:
    """Seeds of one simulation, which is an option of `scripts/simulate`."""

    def __init__(self, option: str, run: Callable[[int], SeedResult], *, progress: int) -> None:
        """run(seed) raises SeedFailed; a line is printed after so many seeds."""
        self._option = option
        self._run = run
        self._progress = progress

    def run(self, first: int, last: int, *, max_events: int) -> int:
        """Run seeds until one fails or max_events have happened; return the exit code."""
        began_s = time.process_time()
        events = digest = acknowledged = 0
        for seed in range(first, last + 1):
            try:
                result = self._run(seed)
            except SeedFailed as error:
                print(f"{error}\nafter {events + error.events:,} events; replay it with")
                print(f"  scripts/simulate {self._option} --seeds {seed}", flush=True)
                return 1
            events += result.events
            acknowledged += result.acknowledged or 0
            digest = zlib.crc32(f"{result.trace} {result.events}".encode(), digest)
            is_last = seed == last or events >= max_events
            if is_last or (seed - first + 1) % self._progress == 0:
                rate = events / max(time.process_time() - began_s, 0.001)
                text = f"seeds {first}-{seed}: {events:,} events, {rate:,.0f} a second"
                if result.acknowledged is not None:
                    text += f", {acknowledged:,} records acknowledged"
                print(text, flush=True)
            if is_last:
                break
        print(f"no seed failed, digest {digest:08x}")
        return 0

    def main(self, document: str | None) -> int:
        """Run what the command line says; return the exit code."""
        parser = argparse.ArgumentParser(description=(document or "").partition("\n")[0])
        parser.add_argument("--seeds", default="0-99", metavar="FIRST-LAST")
        parser.add_argument("--max-events", type=int, default=1 << 60, metavar="COUNT")
        options = parser.parse_args()
        logging.disable(logging.CRITICAL)
        first, _, last = options.seeds.partition("-")
        return self.run(int(first), int(last or first), max_events=options.max_events)
