"""Integers as Java parses them.

Kafka: none; java.lang.Integer.parseInt, Long.parseLong, Short.parseShort.
"""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")


def java_integer(text: str, bits: int) -> int:
    """Parse an integer like Java's parseInt, parseLong or parseShort; raises ValueError."""
    limit = 1 << (bits - 1)
    if _WHOLE.fullmatch(text) is None or not -limit <= int(text) < limit:
        raise ValueError(f'For input string: "{text}"')
    return int(text)
