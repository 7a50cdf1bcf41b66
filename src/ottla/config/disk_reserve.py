"""Ottla's own setting of the disk space reserved for metadata; Kafka has none.

Kafka: none; a broker there writes until the disk is full, and its directory then goes offline.
"""

from __future__ import annotations

from ottla.config.checks import at_least
from ottla.config.definition import LOW, ConfigTable, Long, key

AUTOMATIC = -1
"""The reserve depends on the size of the file system."""
_LARGEST_AUTOMATIC_BYTES = 1 << 30
_AUTOMATIC_PERCENT = 5
_SMALLEST_AUTOMATIC_BYTES = 64 << 20
"""Enough for the records between two measurements, index files and the metadata log."""


class DiskReserveSettings(ConfigTable):
    """Space on a log directory's file system that produced records may not use."""

    log_dir_reserve_bytes: Long = key(
        AUTOMATIC,
        "Bytes of a log directory's file system below which produces to it are refused, so that "
        "metadata, offsets and checkpoints can still be written; -1 is 5 % of the file system, at "
        "least 64 MiB (of small ones a quarter) and at most 1 GiB, 0 turns it off.",
        at_least(AUTOMATIC),
        LOW,
    )


def reserve_bytes(setting_bytes: int, total_bytes: int) -> int:
    """Return the bytes to keep free on a file system of that size."""
    if setting_bytes != AUTOMATIC:
        return setting_bytes
    least = min(_SMALLEST_AUTOMATIC_BYTES, total_bytes // 4)
    share = total_bytes * _AUTOMATIC_PERCENT // 100
    return min(max(share, least), _LARGEST_AUTOMATIC_BYTES)
