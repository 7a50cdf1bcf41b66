"""The offsets that the three connectors store.

Kafka: org.apache.kafka.connect.mirror.MirrorUtils.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.connect.errors import ConnectException

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OFFSET: Final = "offset"


def check_offsets(
    offsets: Mapping[frozenset[tuple[str, Any]], Mapping[str, Any] | None],
    keys: Sequence[str],
    *,
    only_zero: bool,
) -> None:
    """Raise ConnectException for offsets that an operator may not set; partitions are numbers."""
    for names, offset in offsets.items():
        if offset is None:
            continue
        partition = dict(names)
        for key in keys:
            if key not in partition:
                listed = ", ".join(f"'{it}'" for it in keys)
                raise ConnectException(
                    f"The partition {partition} is missing the key '{key}'; it has {listed}"
                )
            value = partition[key]
            valid = _is_number(value) if key == "partition" else isinstance(value, str)
            if not valid or (key == "partition" and value < 0):
                raise ConnectException(f"The value of '{key}' in {partition} is invalid: {value!r}")
        value = offset.get(OFFSET, -1)
        if not _is_number(value) or value < 0:
            raise ConnectException(f"The offset {dict(offset)} needs a non-negative '{OFFSET}'")
        if only_zero and value != 0:
            raise ConnectException(f"The offset of {partition} may only be 0, not {value}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
