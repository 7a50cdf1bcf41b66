"""control"""

from __future__ import annotations

from ottla.protocol.schema import Struct, int16, int32


class EndTxnMarker(Struct, versions="0"):
    """DOC EndTxnMarker."""

    coordinator_epoch: int32


class ControlRecordTypeSchema(Struct, versions="0"):
    """DOC ControlRecordTypeSchema."""

    type: int16
