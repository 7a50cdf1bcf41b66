"""Records of __share_group_state (KIP-932).

Kafka: ShareSnapshot and ShareUpdate, key and value.
"""

from __future__ import annotations

from ottla.protocol.schema import Struct, field, int8, int16, int32, int64
from ottla.types import Uuid


class ShareSnapshotKey(Struct, key=0, versions="0", flexible="none"):
    """Key of the complete state of a share partition."""

    group_id: str
    topic_id: Uuid
    partition: int32


class ShareSnapshotValue(Struct, key=0, versions="0", flexible="0+"):
    """The complete state of a share partition."""

    snapshot_epoch: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(default=-1, tag=0)
    create_timestamp: int64
    write_timestamp: int64
    state_batches: list[StateBatch]

    class StateBatch(Struct):
        first_offset: int64
        last_offset: int64
        delivery_state: int8
        delivery_count: int16


class ShareUpdateKey(Struct, key=1, versions="0", flexible="none"):
    """Key of a change to the state of a share partition."""

    group_id: str
    topic_id: Uuid
    partition: int32


class ShareUpdateValue(Struct, key=1, versions="0", flexible="0+"):
    """A change to the state of a share partition since its last snapshot."""

    snapshot_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(default=-1, tag=0)
    state_batches: list[StateBatch]

    class StateBatch(Struct):
        first_offset: int64
        last_offset: int64
        delivery_state: int8
        delivery_count: int16
