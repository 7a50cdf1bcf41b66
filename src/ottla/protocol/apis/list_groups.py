"""The groups that a broker coordinates.

Kafka: ListGroupsRequest, ListGroupsResponse (key 16).

v3 flexible; v4 filter by state (KIP-518); v5 filter by type (KIP-848).
"""

from __future__ import annotations

from ottla.protocol.schema import EMPTY, Request, Response, Struct, field, int16, int32


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+", listeners=("broker",)):
    states_filter: list[str] = field("4+", default=EMPTY)
    types_filter: list[str] = field("5+", default=EMPTY)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = field("1+", default=0, ignorable=True)
    error_code: int16 = 0
    groups: list[ListedGroup]

    class ListedGroup(Struct):
        group_id: str
        protocol_type: str
        group_state: str = field("4+", default="", ignorable=True)
        group_type: str = field("5+", default="", ignorable=True)
