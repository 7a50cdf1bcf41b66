"""Keys and values of control records in partition logs.

Kafka: ControlRecordTypeSchema, EndTxnMarker; see ControlRecordType for the kinds.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, int16, int32


class ControlRecordTypeSchema(Struct, versions="0", flexible="none"):
    """Key of a control record after its version: the record type."""

    type: int16


class EndTxnMarker(Struct, versions="0", flexible="none"):
    """Value of a commit or abort marker. v1 flexible, transaction version (KIP-1228)."""

    coordinator_epoch: int32
