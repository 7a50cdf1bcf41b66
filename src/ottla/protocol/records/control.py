"""control records.

Kafka: TODO.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, int16, int32


class ControlRecordTypeSchema(Struct, versions="0", flexible="none"):
    """ControlRecordTypeSchema."""

    type: int16


class EndTxnMarker(Struct, versions="0", flexible="none"):
    """EndTxnMarker."""

    coordinator_epoch: int32
