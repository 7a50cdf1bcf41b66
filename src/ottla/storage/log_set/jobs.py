"""Disk work: `run` executes in a worker, `done` on the node's loop.

Kafka: the background tasks of kafka.log.LogManager.
"""

from __future__ import annotations

from typing import Protocol


class StorageJob(Protocol):
    """One unit of disk work; a directory whose job fails goes offline."""

    def run(self) -> None:
        """Do the work; OSError when the disk fails. Touches no shared state."""

    def done(self, error: BaseException | None) -> None:
        """Apply the result on the owner's thread."""
