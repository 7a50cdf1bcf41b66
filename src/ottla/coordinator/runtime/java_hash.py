"""Java's string hash, for results of Kafka that depend on it.

Kafka: org.apache.kafka.common.utils.Utils.abs over String.hashCode.
"""

from __future__ import annotations

from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_POWERS: Final = tuple(31**exponent for exponent in range(63, -1, -1))

_CACHED_LENGTH: Final = 255
"""The hashes of ids up to this length are cached: each request of a group needs its hash."""


def string_hash(text: str) -> int:
    """Return String.hashCode(): 31-polynomial over UTF-16 units, as a signed 32-bit number."""
    return _short_hash(text) if len(text) <= _CACHED_LENGTH else _hash(text)


def _hash(text: str) -> int:
    units: Sequence[int]
    if text.isascii():
        units = text.encode()
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        units = [data[index] << 8 | data[index + 1] for index in range(0, len(data), 2)]
    value = 0
    for start in range(0, len(units), len(_POWERS)):
        part = units[start : start + len(_POWERS)]
        value = value * 31 ** len(part) + sum(map(mul, part, _POWERS[-len(part) :]))
    return _as_int(value)


_short_hash = lru_cache(maxsize=4096)(_hash)


def _as_int(value: int) -> int:
    """Return the low 32 bits as a signed number."""
    return ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def java_index(value: int, count: int) -> int:
    """Return Utils.abs(value) % count; the value overflows as an int does."""
    signed = _as_int(value)
    return (0 if signed == -0x8000_0000 else abs(signed)) % count


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a coordinator's topic that owns key."""
    return java_index(string_hash(key), partition_count)


def in_hash_map_order(keys: Iterable[str], capacity: int = 16) -> list[str]:
    """Return keys in the iteration order of a java.util.HashMap that was made with a capacity."""
    distinct = list(dict.fromkeys(keys))
    size = 1
    while size < capacity or len(distinct) * 4 > size * 3:
        size *= 2

    def bucket(key: str) -> int:
        value = string_hash(key) & 0xFFFF_FFFF
        return (value ^ value >> 16) & (size - 1)

    return sorted(distinct, key=bucket)
