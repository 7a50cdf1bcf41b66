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


class DiskReserveSettings(ConfigTable):
    """Space on a log directory's file system that produced records may not use."""

    log_dir_reserve_bytes: Long = key(
        AUTOMATIC,
        "Bytes of a log directory's file system below which produces to it are refused, so that "
        "metadata, offsets and checkpoints can still be written; -1 is 5 % of the file system or "
        "1 GiB, whichever is less, 0 turns it off.",
        at_least(AUTOMATIC),
        LOW,
    )


def reserve_bytes(setting_bytes: int, total_bytes: int) -> int:
    """Return the bytes to keep free on a file system of that size."""
    if setting_bytes != AUTOMATIC:
        return setting_bytes
    return min(total_bytes * _AUTOMATIC_PERCENT // 100, _LARGEST_AUTOMATIC_BYTES)
