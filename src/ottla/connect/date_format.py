"""Patterns of dates and times, as `yyyy-MM-dd'T'HH:mm:ss.SSS`, for formatting and parsing in UTC.

Lenient, and in English: fields may exceed their range and roll over, numbers may have fewer digits
than the pattern. Week years and week numbers are not supported.

Kafka: java.text.SimpleDateFormat, which settings of transforms name.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.connect.data import DAY_MS, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "a": ("AM", "PM"),
    "G": ("BC", "AD"),
    "E": _DAYS,
    **dict.fromkeys("ML", _MONTHS),
}
_SUPPORTED: Final = "GyMLdHkKhmsSaEDuzZX"
_NUMBERS: Final = "ydHkKhmsSDu"
_BLANKS: Final = re.compile(r"[ \t]*")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
_OFFSET: Final = re.compile(r"(?:(?:GMT)?([+-])(\d{1,2}):?(\d{2})?)|(Z|UTC|GMT)", re.ASCII)
_RUN: Final = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']+")


class _Item(NamedTuple):
    letter: str
    """Empty for a literal text."""
    text: str

    @property
    def is_number(self) -> bool:
        month = self.letter and self.letter in "ML" and len(self.text) < 3
        return bool(month) or (self.letter != "" and self.letter in _NUMBERS)


class DateFormat:
    """A pattern; ValueError for letters without a meaning and quotes without an end."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._items: list[_Item] = []
        position = 0
        while position < len(pattern):
            match = _RUN.match(pattern, position)
            if match is None:
                raise ValueError("Unterminated quote")
            position = match.end()
            letter = match[2] or ""
            if letter and letter not in _SUPPORTED:
                raise ValueError(f"Illegal pattern character '{letter}'")
            quoted = match[1]
            text = match[0] if quoted is None else quoted.replace("''", "'") or "'"
            self._items.append(_Item(letter, text))
        # Two digits of a year mean one of the 80 years before and the 20 after this moment
        self._last_short_year = dt.datetime.now(dt.UTC).year + 20

    def format(self, value_ms: int) -> str:
        """Return a moment as text; DataException outside of the years 1 to 9999."""
        moment = timestamp(value_ms)
        return "".join(_shown(moment, *it) if it.letter else it.text for it in self._items)

    def parse(self, text: str) -> int | None:
        """Return milliseconds since the epoch, None for a text that does not match at its start."""
        fields: dict[str, int] = {}
        position = 0
        for index, item in enumerate(self._items):
            if not item.letter:
                if not text.startswith(item.text, position):
                    return None
                position += len(item.text)
                continue
            blanks = _BLANKS.match(text, position)
            assert blanks is not None
            position = blanks.end()
            following = self._items[index + 1] if index + 1 < len(self._items) else None
            has_digits_next = following is not None and following.is_number
            end = self._field(
                item, text, position, fields, is_exact=item.is_number and has_digits_next
            )
            if end is None:
                return None
            position = end
        return _moment_ms(fields)

    def _field(
        self, item: _Item, text: str, position: int, fields: dict[str, int], *, is_exact: bool
    ) -> int | None:
        """Read one field; return the position after it, None for a text that is no such field."""
        letter, pattern = item
        if not item.is_number:
            return _words(letter, text, position, fields)
        limit = position + len(pattern) if is_exact else len(text)
        match = _NUMBER.match(text, position, limit) if limit <= len(text) else None
        if match is None:
            return None
        number = int(match[0])
        if letter == "y" and len(pattern) <= 2 and len(match[0]) == 2 and number >= 0:
            number += self._last_short_year // 100 * 100
            number -= 100 if number > self._last_short_year else 0
        fields["M" if letter == "L" else letter] = number
        return match.end()


def _words(letter: str, text: str, position: int, fields: dict[str, int]) -> int | None:
    """Read a name or an offset from UTC."""
    if letter in "zZX":
        match = _OFFSET.match(text, position)
        if match is None:
            return None
        minutes = int(match[2] or 0) * 60 + int(match[3] or 0)
        fields["z"] = -minutes if match[1] == "-" else minutes
        return match.end()
    for shorten in (None, 3):
        for number, name in enumerate(_NAMES[letter], 0 if letter in "aG" else 1):
            known = name[:shorten]
            if text[position : position + len(known)].lower() == known.lower():
                fields["M" if letter == "L" else letter] = number
                return position + len(known)
    return None


def _moment_ms(fields: dict[str, int]) -> int:
    year = fields.get("y", 1970)
    if fields.get("G") == 0:
        year = 1 - year
    months = year * 12 + fields.get("M", 1) - 1
    days = _days(months // 12, months % 12 + 1) + fields.get("d", 1) - 1
    if "D" in fields and not {"M", "d"} & fields.keys():
        days = _days(year, 1) + fields["D"] - 1
    hour = 0
    for letter in "HkKh":
        if letter in fields:
            hour = fields[letter]
            if (letter == "k" and hour == 24) or (letter == "h" and hour == 12):
                hour = 0
            hour += 12 * fields.get("a", 0) if letter in "Kh" else 0
    minutes = hour * 60 + fields.get("m", 0) - fields.get("z", 0)
    return days * DAY_MS + minutes * 60_000 + fields.get("s", 0) * 1000 + fields.get("S", 0)


def _days(year: int, month: int) -> int:
    """Return the days from the epoch to the first of a month, in the Gregorian calendar."""
    year -= month <= 2
    era = year // 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5
    year_of_era = year - era * 400
    return (
        era * 146_097
        + year_of_era * 365
        + year_of_era // 4
        - year_of_era // 100
        + day_of_year
        - 719_468
    )


def _shown(moment: dt.datetime, letter: str, pattern: str) -> str:  # noqa: PLR0911 - a branch a type
    size = len(pattern)
    if letter == "y":
        return f"{moment.year % 100:02d}" if size == 2 else str(moment.year).zfill(size)
    if letter in "ML":
        if size >= 3:
            return _MONTHS[moment.month - 1][: None if size > 3 else 3]
        return str(moment.month).zfill(size)
    if letter == "E":
        return _DAYS[moment.weekday()][: None if size > 3 else 3]
    if letter == "a":
        return "AM" if moment.hour < 12 else "PM"
    if letter == "G":
        return "AD"
    if letter == "z":
        return "UTC" if size < 4 else "Coordinated Universal Time"
    if letter in "ZX":
        return "Z" if letter == "X" else "+0000"
    return str(_SHOWN[letter](moment)).zfill(size)


_SHOWN: Final[dict[str, Callable[[dt.datetime], int]]] = {
    "d": lambda moment: moment.day,
    "H": lambda moment: moment.hour,
    "k": lambda moment: moment.hour or 24,
    "K": lambda moment: moment.hour % 12,
    "h": lambda moment: moment.hour % 12 or 12,
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
    "S": lambda moment: moment.microsecond // 1000,
    "D": lambda moment: moment.timetuple().tm_yday,
    "u": dt.datetime.isoweekday,
}
