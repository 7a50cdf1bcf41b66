"""Offsets that somebody else has written into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.connect.runtime.offsets import OffsetStore

if TYPE_CHECKING:
    from collections.abc import Mapping


class Stored:
    """Offsets in memory."""

    def __init__(self, entries: Mapping[bytes | None, bytes | None]) -> None:
        """Take what is stored."""
        self.entries: dict[bytes | None, bytes | None] = dict(entries)

    def put(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Store."""
        for key, value in entries.items():
            self.entries[key] = value


@pytest.mark.parametrize("value", [b"\xff\x00", b"{", b"5", b'["x"]', b"NaN-"])
def test_a_value_that_is_no_offset_is_none(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's line is logged, other offsets are read, and the next commit repairs it."""
    key, good = b'["c",{"p":1}]', b'["c",{"p":2}]'
    storage = Stored({key: value, good: b'{"o":7}', b"\xfe": b"1", None: b"{}", b'["c",4]': b"{}"})
    store = OffsetStore(storage)
    assert store.get_all("c", [{"p": 1}, {"p": 2}]) == [None, {"o": 7}]
    assert store.all_of("c") == [({"p": 2}, {"o": 7})]
    assert "CRITICAL: Failed to deserialize offset data" in caplog.text
    store.put("c", [({"p": 1}, {"o": 1})])
    assert store.get("c", {"p": 1}) == {"o": 1}
    store.put("c", [({"p": 1}, None)])
    assert store.get("c", {"p": 1}) is None
