"""Which failures of a file call say something about the disk.

A process that ran out of descriptors has a healthy disk: its directories must stay online, where
Kafka takes them offline. Kafka: LogDirFailureChannel.
"""

from __future__ import annotations

import errno

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


def is_exhaustion(error: BaseException | None) -> bool:
    """Whether the call failed, before it did anything, for want of descriptors."""
    return isinstance(error, OSError) and error.errno in _EXHAUSTED
