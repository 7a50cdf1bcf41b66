"""Ottla's own limits of what strangers' bytes may cost; Kafka has none of them.

Kafka: none.
"""

from __future__ import annotations

from ottla.config.checks import at_least, between
from ottla.config.definition import LOW, MAX_INT, ConfigTable, Int, Long, key

_MIB = 1024 * 1024


class LimitSettings(ConfigTable):
    """How far batches may unfold, and how many producers are remembered."""

    decompressed_max_bytes: Int = key(
        100 * _MIB,
        "Most bytes that the records of one produced batch may take when they are plain.",
        between(_MIB, MAX_INT),
        LOW,
    )
    decompression_max_cpu_ms: Int = key(
        1000,
        "Most time of a processor that checking the records of one produced batch may take.",
        at_least(1),
        LOW,
    )
    decompressed_total_bytes: Long = key(
        256 * _MIB,
        "Most bytes that batches may unfold to at the same time; others wait, one always runs.",
        at_least(1),
        LOW,
    )
    producer_states_max: Int = key(
        1_000_000,
        "Most idempotent producers remembered in all partitions; new ones are refused then.",
        at_least(1),
        LOW,
    )
