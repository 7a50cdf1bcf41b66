"""Which of the hot modules are compiled, and the note for an install without compiled ones.

Kafka: none.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec
from typing import Final

log = logging.getLogger("ottla.clients")
COMPILED_MODULES: Final = (
    "ottla.metrics.sampled_stat",
    "ottla.records.scan",
    "ottla.records.newest_values",
    "ottla.records.column_scan",
    "ottla.records.lz4_frames",
    "ottla.records.validator",
    "ottla.protocol.walker",
    "ottla.protocol.flat",
    "ottla.protocol.request_header",
    "ottla.protocol.produce_values",
    "ottla.protocol.fetch_values",
    "ottla.protocol.follower_fetch",
    "ottla.storage.batches",
    "ottla.storage.cleaner.key_scan",
    "ottla.storage.cleaner.offset_map",
    "ottla.clients.producer.batches",
    "ottla.clients.producer.accumulator",
    "ottla.clients.producer.partitioner",
    "ottla.clients.consumer.record_decoder",
)
"""As in setup.py."""
NOT_COMPILED: Final = (
    "Ottla's modules are not compiled: produce takes about 3 times and consume 5 times the CPU; "
    "install a C compiler, then Ottla again (docs/operations.md)"
)


@cache
def uncompiled_modules() -> tuple[str, ...]:
    """Return the hot modules that run as plain Python."""
    specs = ((name, find_spec(name)) for name in COMPILED_MODULES)
    return tuple(name for name, spec in specs if spec and (spec.origin or "").endswith(".py"))


@cache
def warn_not_compiled() -> None:
    """Log once in a process that a client runs without compiled modules."""
    if uncompiled_modules():
        log.warning(NOT_COMPILED)
