"""Texts of log lines, bounded and escaped: the one place that formats what clients send.

A name may have 32 KB and a request 100,000 of them. Whatever a line is made of is cut, with a mark
and its length, and no value can begin a line of its own.

Kafka: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

MAX_VALUE_CHARACTERS: Final = 1000
"""More than any valid topic name (249) and any name of a certificate that is used in practice."""
MAX_MESSAGE_CHARACTERS: Final = 4000
MAX_TRACEBACK_CHARACTERS: Final = 16_000
MAX_LISTED: Final = 5
"""Names, or texts of errors, that lines about one request have."""


def shortened(text: str, limit: int) -> str:
    """Return a text that is longer than a limit cut, with a mark and its length."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def bounded(value: object) -> object:
    """Return a value whose text is short as it is, any other as a text that is cut."""
    if isinstance(value, int | float):
        return value
    text = value if type(value) is str else str(value)
    if len(text) <= MAX_VALUE_CHARACTERS:
        return value
    return shortened(text, MAX_VALUE_CHARACTERS)


def message_of(record: logging.LogRecord) -> str:
    """Return a record's message, made of values that are cut."""
    args = record.args
    text = str(record.msg)
    if isinstance(args, Mapping):
        text %= {name: bounded(value) for name, value in args.items()}
    elif args:
        text %= tuple(map(bounded, args))
    return shortened(text, MAX_MESSAGE_CHARACTERS)


def listed(names: Sequence[str]) -> str:
    """Return the first names of a request, and the number of the others."""
    first = ", ".join(names[:MAX_LISTED])
    more = len(names) - MAX_LISTED
    return f"{first} and {more:,} more" if more > 0 else first


def escape(text: str) -> str:
    """Escape control characters, so that no value can forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
