r"""Parser and writer of Java's .properties files.

Kafka: java.util.Properties. The rules in short: `#` or `!` starts a comment line; a line that ends
in an odd number of backslashes continues in the next one, whose leading blanks are ignored; `=`,
`:` or blanks end the name; `\t \n \r \f \uXXXX` are
escapes and a backslash before any other character stands for that character.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


class PropertiesError(ValueError):
    """A malformed properties file; the text names the line."""


class Property(NamedTuple):
    """One setting of a file and its first line, counted from 1."""

    name: str
    value: str
    line: int


def parse_properties(text: str) -> dict[str, str]:
    """Parse all settings; the last one of a name wins. Raises PropertiesError."""
    return {found.name: found.value for found in read_properties(text)}


def read_properties(text: str) -> Iterator[Property]:
    """Yield the settings in the file's order, repeated names too."""
    for number, line in _logical_lines(text):
        name, value = _split(line)
        yield Property(_unescape(name, number), _unescape(value, number), number)


def write_properties(settings: Mapping[str, str], *, comments: Iterable[str] = ()) -> str:
    """Format settings as Java does: comment lines, then one `name=value` on each line."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(name, in_name=True)}={_escape(value)}" for name, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join continued lines; skip blank lines and comments."""
    pending: str | None = None
    start = 0
    natural = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(natural, start=1):
        line = raw.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            start = number
        else:
            line = pending + line
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            pending = line[:-1]
            continue
        pending = None
        yield start, line
    if pending:
        yield start, pending


def _split(line: str) -> tuple[str, str]:
    position, size = 0, len(line)
    while position < size and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    name, rest = line[:position], line[position:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANKS)
    return name, rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position >= len(text):
            out.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            out.append(_unicode(text[position : position + 4], line))
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode(digits: str, line: int) -> str:
    if not re.fullmatch("[0-9a-fA-F]{4}", digits):
        raise PropertiesError(f"Malformed \\uxxxx encoding in line {line}")
    return chr(int(digits, 16))


def _escape(text: str, *, in_name: bool = False) -> str:
    out: list[str] = []
    for position, character in enumerate(text):
        if character in _WRITTEN:
            out.append(_WRITTEN[character])
        elif character in "\\=:#!" or (character == " " and (in_name or position == 0)):
            out.append("\\" + character)
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be")
            out += [f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2)]
    return "".join(out)
