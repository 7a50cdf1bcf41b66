"""Members of groups whose protocol is a heartbeat, for the cases of consumer and streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.protocol.api_keys import ApiKey
    from tests.conformance.differential.case import Fields
    from tests.conformance.differential.side import Side

MEMBER, OTHER = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"


class Members(NamedTuple):
    """The heartbeats of one kind of group: what joins, and what says that nothing has changed."""

    kind: str
    heartbeat_key: ApiKey
    join: dict[str, Any]
    unchanged: dict[str, Any]

    def joining(self, **changes: Any) -> Fields:
        """Join a group of this case's own."""

        def fields(at: Side, version: int) -> dict[str, Any]:
            at.coordinator()
            return {"group_id": f"{at.label} {version}", **self.join, **changes}

        return fields

    def heartbeat(self, **changes: Any) -> Fields:
        """Send a heartbeat of the member of a group."""

        def fields(at: Side, version: int) -> dict[str, Any]:
            group = f"{at.label} {version}"
            epoch = at.once(f"{self.kind} group {group}", lambda: self._joined(at, group))
            sent = {"member_id": MEMBER, "member_epoch": epoch, **self.unchanged}
            return {"group_id": group, **sent, **changes}

        return fields

    def described(self, at: Side, _version: int) -> dict[str, Any]:
        """Describe a group of one member."""
        group = f"described {self.kind}"
        at.once(f"{self.kind} group described", lambda: self._joined(at, group))
        return {"group_ids": [group], "include_authorized_operations": False}

    def _joined(self, at: Side, group: str) -> int:
        """Make a group of one member; return its epoch."""
        at.coordinator()
        answer = at.ask(self.heartbeat_key, group_id=group, **self.join)
        assert answer.error_code == 0, answer
        return int(answer.member_epoch)


def naming(*groups: str) -> Fields:
    """Describe groups."""

    def fields(at: Side, version: int) -> dict[str, Any]:
        at.coordinator()
        return {"group_ids": list(groups), "include_authorized_operations": False}

    return fields
