"""State and members of classic groups.

Kafka: DescribeGroupsRequest, DescribeGroupsResponse (key 15).

v3 authorised operations (KIP-430); v4 static members (KIP-345); v5 flexible; v6 an unknown group
is GROUP_ID_NOT_FOUND instead of a dead one (KIP-1043).
"""

from __future__ import annotations

from ottla.protocol.schema import Request, Response, Struct, field, int16, int32


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+", listeners=("broker",)):
    groups: list[str]
    include_authorized_operations: bool = field("3+", default=False)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = field("6+", default=None)
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: list[DescribedGroupMember]
        authorized_operations: int32 = field("3+", default=-2_147_483_648)

        class DescribedGroupMember(Struct):
            member_id: str
            group_instance_id: str | None = field("4+", default=None, ignorable=True)
            client_id: str
            client_host: str
            member_metadata: bytes
            member_assignment: bytes
