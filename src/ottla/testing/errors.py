"""What the fixtures raise.

Kafka: none.
"""

from __future__ import annotations


class ClusterError(RuntimeError):
    """The cluster was asked for something it cannot do; one line."""
