"""All settings that exist in Ottla but not in Kafka; `OTTLA_…` variables set them.

Kafka: none; a broker there writes until the disk is full, and its directory then goes offline.
"""

from __future__ import annotations

from ottla.config.checks import at_least, between
from ottla.config.definition import LOW, MAX_INT, Bool, ConfigTable, Int, Long, key
from ottla.config.log_lines import LoggingSettings
from ottla.config.metrics import MetricsSettings

_AUTOMATIC = -1
"""The reserve depends on the size of the file system."""
_LARGEST_AUTOMATIC_BYTES = 1 << 30
_AUTOMATIC_PERCENT = 5
_SMALLEST_AUTOMATIC_BYTES = 64 << 20
"""Enough for the records between two measurements, index files and the metadata log."""


class _DiskReserveSettings(ConfigTable):
    """Space on a log directory's file system that produced records may not use."""

    log_dir_reserve_bytes: Long = key(
        _AUTOMATIC,
        "Bytes of a log directory's file system below which produces to it are refused, so that "
        "metadata, offsets and checkpoints can still be written; -1 is 5 % of the file system, at "
        "least 64 MiB (of small ones a quarter) and at most 1 GiB, 0 turns it off.",
        at_least(_AUTOMATIC),
        LOW,
    )


class _DirectoryReturnSettings(ConfigTable):
    """The way back of a log directory whose disk failed."""

    log_dir_return_interval_ms: Long = key(
        30_000,
        "Time after which a log directory that is offline is tried again; doubled with each "
        "failure, up to 16 times. 0 leaves it offline until a restart, as Kafka does.",
        at_least(0),
        LOW,
    )


def reserve_bytes(setting_bytes: int, total_bytes: int) -> int:
    """Return the bytes to keep free on a file system of that size."""
    if setting_bytes != _AUTOMATIC:
        return setting_bytes
    least = min(_SMALLEST_AUTOMATIC_BYTES, total_bytes // 4)
    share = total_bytes * _AUTOMATIC_PERCENT // 100
    return min(max(share, least), _LARGEST_AUTOMATIC_BYTES)


_MIB = 1024 * 1024


class _FailureDetectionSettings(ConfigTable):
    """Detection of broker and controller failures."""

    broker_failure_detection_enable: Bool = key(
        True,
        "Fence a broker, and elect another controller, as soon as its port refuses connections; "
        "false waits for the session and fetch timeouts, as Kafka does.",
    )


class _KeyFileSettings(ConfigTable):
    """Requirements on the files of private keys."""

    ssl_keystore_require_private: Bool = key(
        False,
        "Refuse a PEM file with a private key that is not encrypted and that every user of the "
        "machine can read; false warns.",
    )


class LimitSettings(ConfigTable):
    """Limits of decompression and of producer states."""

    decompressed_max_bytes: Int = key(
        100 * _MIB,
        "Maximum decompressed bytes of the records of one produced batch.",
        between(_MIB, MAX_INT),
        LOW,
    )
    decompression_max_cpu_ms: Int = key(
        1000,
        "Maximum CPU time for validating the records of one produced batch.",
        at_least(1),
        LOW,
    )
    decompression_memory_bytes: Long = key(
        32 * _MIB,
        "Maximum memory for produced batches that are decompressed at the same time; others wait.",
        at_least(16 * _MIB),
        LOW,
    )
    producer_states_max: Int = key(
        1_000_000,
        "Maximum number of idempotent producer states in all partitions; more are refused.",
        at_least(1),
        LOW,
    )


class OwnSettings(
    MetricsSettings,
    _DiskReserveSettings,
    _DirectoryReturnSettings,
    _FailureDetectionSettings,
    _KeyFileSettings,
    LimitSettings,
    LoggingSettings,
):
    """Ottla's own settings of a node; each base is one table."""
