"""Python versions of the functions that compiled modules call through CPython's C interface.

`native.pxd` has the same functions as inline C: a pointer in place of a typed memoryview, which
makes an object and checks a format at each use, and objects made without a call of their type.

Kafka: no counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.types import Buffer


def bytes_of(source: Buffer) -> Any:
    """Return an object with the bytes of source by position: in C a pointer.

    The caller keeps source while it uses them.
    """
    return source


def is_readonly(view: memoryview) -> bool:
    """Return whether its bytes may not be written."""
    return view.readonly


def int_at(data: Any, position: int, width: int) -> int:
    """Return the signed big-endian integer of 2, 4 or 8 bytes at position, which must exist."""
    return int.from_bytes(data[position : position + width], "big", signed=True)


def put_at(data: Any, position: int, width: int, value: int) -> None:
    """Write the big-endian integer of 2, 4 or 8 bytes at position, which must exist."""
    data[position : position + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")


def copy_bytes(target: Any, position: int, source: Any, start: int, size: int) -> None:
    """Copy bytes from source to target, which must have them and not overlap."""
    target[position : position + size] = source[start : start + size]


def has_crc32c() -> bool:
    """Return whether `crc32c` may be called: whether the processor has the instruction."""
    return False


def crc32c(data: Any, position: int, end: int, crc: int) -> int:
    """Return the CRC-32C register, not inverted, after the bytes from position to end."""
    for byte in data[position:end]:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc


def release_interpreter() -> Any:
    """Let other threads run Python: until `take_interpreter` nothing may touch an object."""


def take_interpreter(_state: Any) -> None:
    """Wait for the interpreter that `release_interpreter` released."""


def text_at(data: Any, position: int, size: int) -> str:
    """Return UTF-8 text; U+FFFD replaces invalid bytes."""
    return str(data[position : position + size], "utf-8", "replace")


def new_bytes(kind: type, data: Any, position: int, size: int) -> Any:
    """Return bytes of a subclass without slots, without a call of its constructor."""
    return bytes.__new__(kind, data[position : position + size])


def new_bytearray(size: int) -> bytearray:
    """Return bytes to be written; in C they hold anything."""
    return bytearray(size)


def new_tuple(kind: type, values: tuple[Any, ...]) -> Any:
    """Return a named tuple, whose own constructor is a Python function."""
    return tuple.__new__(kind, values)
