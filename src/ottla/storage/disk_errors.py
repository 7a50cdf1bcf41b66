"""Classification of file system errors.

When a process runs out of descriptors the disk is healthy: its directories stay online, where Kafka
takes them offline. Kafka: LogDirFailureChannel.
"""

from __future__ import annotations

import errno

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


def is_exhaustion(error: BaseException | None) -> bool:
    """Whether the call failed for lack of file descriptors, before it had any effect."""
    return isinstance(error, OSError) and error.errno in _EXHAUSTED
