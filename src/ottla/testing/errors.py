"""Exceptions of the fixtures.

Kafka: none.
"""

from __future__ import annotations


class ClusterError(RuntimeError):
    """A request that the cluster cannot execute; the text is one line."""
