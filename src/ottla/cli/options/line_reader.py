"""Parses lines of text to records, with separators between headers, key and value.

Kafka: org.apache.kafka.tools.LineMessageReader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

DEFAULTS = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "ignore.error": "false",
    "null.marker": "",
}


class LineError(Exception):
    """A line that cannot be parsed to a record."""


class Message(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class LineReader:
    """Parses records from lines according to its properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        given = {**DEFAULTS, **properties}
        self._parse_key = given["parse.key"].strip().lower() == "true"
        self._parse_headers = given["parse.headers"].strip().lower() == "true"
        self._ignore_errors = given["ignore.error"].strip().lower() == "true"
        self._key_separator = given["key.separator"]
        self._headers_delimiter = given["headers.delimiter"]
        self._headers_separator = given["headers.separator"]
        self._header_key_separator = given["headers.key.separator"]
        self._null_marker = given["null.marker"]
        self._check()

    def _check(self) -> None:
        separators = {
            "key.separator": self._key_separator,
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._header_key_separator,
        }
        if self._headers_delimiter == self._headers_separator:
            raise LineError("headers.delimiter and headers.separator may not be equal")
        if self._headers_delimiter == self._header_key_separator:
            raise LineError("headers.delimiter and headers.key.separator may not be equal")
        if self._headers_separator == self._header_key_separator:
            raise LineError("headers.separator and headers.key.separator may not be equal")
        for name, separator in separators.items():
            if self._null_marker and self._null_marker == separator:
                raise LineError(f"null.marker and {name} may not be equal")

    def read(self, lines: Iterable[str]) -> Iterator[Message]:
        """Yield one record per line; raises LineError for an invalid line."""
        for number, line in enumerate(lines, start=1):
            yield self._message(line.rstrip("\n").removesuffix("\r"), number)

    def _message(self, line: str, number: int) -> Message:
        headers: tuple[tuple[str, bytes | None], ...] = ()
        rest = line
        if self._parse_headers:
            text, rest = self._cut(rest, self._headers_delimiter, "headers delimiter", number)
            headers = self._headers(text, number)
        key = None
        if self._parse_key:
            key, rest = self._cut(rest, self._key_separator, "key separator", number)
        return Message(self._bytes(key), self._bytes(rest), headers)

    def _cut(self, text: str, separator: str, what: str, number: int) -> tuple[str | None, str]:
        before, found, after = text.partition(separator)
        if found:
            return before, after
        if self._ignore_errors:
            return None, text
        raise LineError(f"No {what} found on line number {number}: '{text}'")

    def _headers(self, text: str | None, number: int) -> tuple[tuple[str, bytes | None], ...]:
        if text is None or (self._null_marker and text == self._null_marker):
            return ()
        pairs = []
        parts = text.split(self._headers_separator)
        while text and parts and not parts[-1]:  # as Java's split, which drops trailing empty parts
            parts.pop()
        for part in parts:
            name, found, value = part.partition(self._header_key_separator)
            if found and self._null_marker and name == self._null_marker:
                raise LineError(
                    f"Header keys should not be equal to the null marker '{name}' as they can't be "
                    "null"
                )
            if found:
                pairs.append((name, self._bytes(value)))
            elif self._ignore_errors:
                pairs.append((part, None))
            else:
                raise LineError(
                    f"No header key separator found in pair '{part}' on line number {number}"
                )
        return tuple(pairs)

    def _bytes(self, text: str | None) -> bytes | None:
        if text is None or (self._null_marker and text == self._null_marker):
            return None
        return text.encode("utf-8", "surrogateescape")
