"""`ottla console-consumer` with the formatters of the coordinators' topics."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest

from ottla.cli.output.coordinator_records import PACKAGE, coordinator_formatter
from ottla.clients.consumer.record_decoder import ConsumerRecord
from ottla.protocol import codec
from ottla.protocol.records import group, share, share_group, transaction
from ottla.types import ZERO_UUID

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct

OFFSET = (
    (1, group.OffsetCommitKey(group="g", topic="t", partition=3)),
    (1, group.OffsetCommitValue(offset=7, metadata="m", commit_timestamp=5)),
)
OFFSET_JSON = (
    '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":3}},"value":{"version":1,'
    '"data":{"offset":7,"metadata":"m","commitTimestamp":5,"expireTimestamp":-1}}}'
)
MEMBER = group.MemberMetadata(
    member_id="m",
    client_id="",
    client_host="h",
    session_timeout=9,
    subscription=b"\0\1",
    assignment=b"",
)
GROUP = (
    (2, group.GroupMetadataKey(group="g")),
    (
        3,
        group.GroupMetadataValue(
            protocol_type="consumer", generation=0, protocol=None, leader=None, members=[MEMBER]
        ),
    ),
)
GROUP_JSON = (
    '{"key":{"type":2,"data":{"group":"g"}},"value":{"version":3,"data":{"protocolType":"consumer",'
    '"generation":0,"protocol":null,"leader":null,"currentStateTimestamp":-1,"members":[{'
    '"memberId":"m","groupInstanceId":null,"clientId":"","clientHost":"h",'
    '"rebalanceTimeout":-1,"sessionTimeout":9,"subscription":"AAE=","assignment":""}]}}}'
)
SHARE_GROUP = ((11, share_group.ShareGroupMetadataKey(group_id="g")), None)
TRANSACTION = ((0, transaction.TransactionLogKey(transactional_id="x")), None)
UPDATE = ((1, share.ShareUpdateKey(group_id="g", topic_id=ZERO_UUID, partition=2)), None)
UPDATE_JSON = (
    '{"key":{"type":1,"data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":2}},'
    '"value":null}'
)
UNKNOWN = ((99, group.GroupMetadataKey(group="g")), None)


def _bytes(part: tuple[int, Struct], version: int) -> bytes:
    number, message = part
    return pack(">h", number) + codec.to_bytes(message, version)


def shown(name: str, pair: tuple[tuple[int, Struct], tuple[int, Struct] | None]) -> str:
    """Return the output of the named formatter for a record."""
    key, value = pair
    found = coordinator_formatter(name)
    assert found is not None
    stored = None if value is None else _bytes(value, value[0])
    return found(ConsumerRecord("t", 0, 0, 0, _bytes(key, 0), stored, ()))


@pytest.mark.parametrize(
    ("name", "pair", "text"),
    [
        ("OffsetsMessageFormatter", OFFSET, OFFSET_JSON),
        ("OffsetsMessageFormatter", GROUP, ""),
        ("OffsetsMessageFormatter", UNKNOWN, ""),
        ("GroupMetadataMessageFormatter", GROUP, GROUP_JSON),
        ("GroupMetadataMessageFormatter", OFFSET, ""),
        (
            "ShareGroupMessageFormatter",
            SHARE_GROUP,
            '{"key":{"type":11,"data":{"groupId":"g"}},"value":null}',
        ),
        ("ShareGroupMessageFormatter", GROUP, ""),
        (
            "TransactionLogMessageFormatter",
            TRANSACTION,
            '{"key":{"type":0,"data":{"transactionalId":"x"}},"value":null}',
        ),
        (
            "group.share.ShareGroupStateMessageFormatter",
            UPDATE,
            UPDATE_JSON,
        ),
    ],
)
def test_records_as_kafka_shows_them(
    name: str, pair: tuple[tuple[int, Struct], tuple[int, Struct] | None], text: str
) -> None:
    """Each formatter writes the records of its kinds, without a line end, and no others."""
    assert shown(PACKAGE + name, pair) == text
    assert shown(name, pair) == text


def test_records_that_cannot_be_read() -> None:
    """A record without a key is omitted; a corrupt one is named by its offset."""
    write = coordinator_formatter("OffsetsMessageFormatter")
    assert write is not None
    assert write(ConsumerRecord("t", 0, 8, 0, None, b"x", ())) == ""
    for key, value, problem in (
        (b"\0", None, "Could not read version from key's buffer."),
        (_bytes(OFFSET[0], 0), b"\0", "Could not read version from value's buffer."),
        (_bytes(OFFSET[0], 0), b"\0\x63", "Found an unknown record version 99 for 1 type"),
        (b"\0\1\0\5g", None, "Could not read record with version 1 from key's buffer due to:"),
    ):
        with pytest.raises(
            ValueError, match="Could not read record at offset 8 due to: "
        ) as reported:
            write(ConsumerRecord("t", 0, 8, 0, key, value, ()))
        assert problem in str(reported.value)


def test_other_classes() -> None:
    """Other classes have no formatter."""
    assert coordinator_formatter("DefaultMessageFormatter") is None
    assert coordinator_formatter("my.OffsetsMessageFormatter") is None
