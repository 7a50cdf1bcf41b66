"""Faults of the quorum's simulation: clocks that drift, bits that rot, a slow network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.raft.requests import Fetch, FetchResponse, FetchSnapshot, FetchSnapshotResponse
from ottla.types import OffsetAndEpoch

if TYPE_CHECKING:
    from random import Random

    from ottla.raft.replicated_log import ReplicatedLog
    from ottla.raft.requests import ReplicaKey
    from ottla.types import Buffer

MAX_DRIFT = 0.04
MAX_WALL_JUMP_MS = 3_600_000
CHECKED_BYTES = 40
"""At the end of a batch: its checksum covers them. It covers no offset and no epoch."""


class SimulatedClock:
    """The quorum's time, wall time as well."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        """Return the time."""
        return self.ms

    def monotonic_ms(self) -> int:
        """Return the time."""
        return self.ms


class DriftingClock:
    """One process's clock: it runs faster or slower than the others, and its wall time jumps."""

    def __init__(self, true: SimulatedClock, rng: Random, *, drifts: bool) -> None:
        self._true = true
        self._rate = 1.0 + (rng.uniform(-MAX_DRIFT, MAX_DRIFT) if drifts else 0.0)
        self._wall_ms = rng.randrange(-MAX_WALL_JUMP_MS, MAX_WALL_JUMP_MS) if drifts else 0

    def now_ms(self) -> int:
        """Return the wall time."""
        return self._true.ms + self._wall_ms

    def monotonic_ms(self) -> int:
        """Return the time by which the process waits."""
        return int(self._true.ms * self._rate)

    def true_delay_ms(self, due_ms: int) -> int:
        """Return how long it is, truly, until this clock shows due_ms."""
        return max(1, int((due_ms - self.monotonic_ms()) / self._rate) + 1)


def latency_ms(rng: Random, slow_probability: float) -> int:
    """Return how long a message takes; a slow one longer than anyone waits for it."""
    if slow_probability and rng.random() < slow_probability:
        return rng.randrange(500, 5000)
    if rng.random() < 0.02:
        return rng.randrange(20, 800)
    return rng.randrange(1, 6)


def twin_request(
    fetch: Fetch, key: ReplicaKey, log: ReplicatedLog, rng: Random
) -> Fetch | FetchSnapshot:
    """Return what a process on a copy of the receiver's directory sends it: it has all records."""
    if rng.random() < 0.1:
        return FetchSnapshot(key, fetch.epoch, OffsetAndEpoch(1, 1), 0)
    return Fetch(key, fetch.epoch, log.end_offset, log.epoch_at_end(), -1, 0)


def rotten(response: Any, rng: Random) -> Any:
    """Return a response with one flipped bit in its records or its last part of a snapshot."""
    if isinstance(response, FetchResponse) and response.records:
        return response._replace(records=_flipped(response.records, rng))
    if not isinstance(response, FetchSnapshotResponse) or not response.data:
        return response
    is_last = response.position + len(response.data) >= response.size_bytes
    return response._replace(data=_flipped(response.data, rng)) if is_last else response


def _flipped(data: Buffer, rng: Random) -> bytes:
    changed = bytearray(data)
    changed[-1 - rng.randrange(min(CHECKED_BYTES, len(changed)))] ^= 1 << rng.randrange(8)
    return bytes(changed)
