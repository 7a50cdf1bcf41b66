"""Ottla's own resource limits for untrusted clients, and the detection of failed processes.

Kafka: none.
"""

from __future__ import annotations

from ottla.config.checks import at_least, between
from ottla.config.definition import LOW, MAX_INT, Bool, ConfigTable, Int, Long, key

_MIB = 1024 * 1024


class FailureDetectionSettings(ConfigTable):
    """Detection of broker and controller failures."""

    broker_failure_detection_enable: Bool = key(
        True,
        "Fence a broker, and elect another controller, as soon as its port refuses connections; "
        "false waits for the session and fetch timeouts, as Kafka does.",
    )


class KeyFileSettings(ConfigTable):
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
