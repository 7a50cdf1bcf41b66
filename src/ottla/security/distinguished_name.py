"""Principals of client certificates: the subject's name, shortened by rules.

Kafka: org.apache.kafka.common.security.ssl.SslPrincipalMapper; the name itself is Java's
javax.security.auth.x500.X500Principal.getName(): ACLs and super.users hold it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.security.java_regex import compile_java, replace_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHORT: Final = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
"""The attributes that RFC 2253 has a name for, by their object identifiers."""
_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 12, 19, 20, 22, 27, 30
_STRINGS: Final = {_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP}
"""Whatever the kind of these strings is, Java reads their bytes as UTF-8."""
_SPECIAL: Final = re.compile(r'([,=+<>#;"\\])')
_LONG_LENGTH: Final = 0x80
_VERSION: Final = 0xA0
_SUBJECT: Final = 4
"""Fields of a certificate before its subject, without the version."""


def subject_name(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, in the form of RFC 2253 as Java writes it.

    ValueError when it cannot be read.
    """
    try:
        _, _, whole = next(_elements(certificate))
        _, _, signed = next(_elements(whole))
        fields = [content for tag, _, content in _elements(signed) if tag != _VERSION]
        names = list(_elements(fields[_SUBJECT]))
        return ",".join(
            "+".join(_attribute(part) for _, _, part in _elements(name))
            for _, _, name in reversed(names)
        )
    except (IndexError, StopIteration) as error:
        raise ValueError("the certificate's subject cannot be read") from error


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the elements of DER: tag, the whole element, its content."""
    position = 0
    while position < len(data):
        begin, tag, size = position, data[position], data[position + 1]
        position += 2
        if size >= _LONG_LENGTH:
            count = size - _LONG_LENGTH
            size = int.from_bytes(data[position : position + count])
            position += count
        if position + size > len(data):
            raise IndexError
        yield tag, data[begin : position + size], data[position : position + size]
        position += size


def _attribute(encoded: bytes) -> str:
    """Return one attribute: a known one by name and text, any other by number and bytes."""
    (_, _, object_id), (tag, element, value) = _elements(encoded)
    short = _SHORT.get(object_id)
    if short is None:
        return f"{_dotted(object_id)}=#{element.hex()}"
    if tag not in _STRINGS:
        return f"{short}=#{element.hex()}"
    text = _SPECIAL.sub(r"\\\1", value.decode(errors="replace")).replace("\0", "\\00")
    begin, end = len(text) - len(text.lstrip(" \r")), len(text.rstrip(" \r"))
    if end <= begin:
        return f"{short}=" + "".join(f"\\{char}" for char in text)
    lead, trail = (
        "".join(f"\\{char}" for char in outside) for outside in (text[:begin], text[end:])
    )
    return f"{short}={lead}{text[begin:end]}{trail}"


def _dotted(object_id: bytes) -> str:
    """Return an object identifier in decimal."""
    numbers: list[int] = []
    number = 0
    for byte in object_id:
        number = number << 7 | byte & 0x7F
        if byte < _LONG_LENGTH:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


_ANY: Final = r"[^\n\r\x85\u2028\u2029]*?"
_RULE: Final = (
    r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\[^\n\r\x85\u2028\u2029]|[^\\/])*)/"
    rf"(?P<replacement>(?:\\[^\n\r\x85\u2028\u2029]|[^\\/])*)/(?P<case>[LU]?){_ANY}|{_ANY}"
)
"""Kafka's own pattern, where `.` is Java's."""
_SPLITTER: Final = re.compile(rf"\s*(?P<rule>{_RULE})\s*(?:,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\$([0-9]+)")
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What String.trim() removes."""


class Rule(NamedTuple):
    """One rule; without a pattern the name stays as it is."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """Return the short name, None when the rule does not fit; ValueError as Java fails."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        replacement = _with_literals(self.replacement, self.pattern.groups)
        found = replace_all(self.pattern, replacement, name)
        if self.case == "L":
            return found.lower()
        return found.upper() if self.case == "U" else found


def _with_literals(replacement: str, group_count: int) -> str:
    """Escape references to groups that do not exist, exactly as Kafka does.

    Kafka does not where there is no group at all, and its positions are those before the first
    escape: a second one lands one character too early.
    """
    if not group_count:
        return replacement
    escaped = replacement
    for reference in _REFERENCE.finditer(replacement):
        if reference[1].startswith("0"):
            continue
        number = int(reference[1])
        while number > group_count and number >= 10:  # $13 is $1 and a 3 where there is no 13
            number //= 10
        if number > group_count:
            begin = reference.start()
            escaped = f"{escaped[:begin]}\\{escaped[begin:]}"
    return escaped


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read ssl.principal.mapping.rules; ValueError when they are invalid.

    As in Kafka an empty text has no rule, so that no certificate has a principal.
    """
    rules: list[Rule] = []
    for found in _SPLITTER.finditer(text.strip(_TRIMMED)):
        rule = found["rule"]
        match = _PARSER.match(rule)
        assert match is not None  # its last alternative is empty
        if match.end() != len(rule):
            left = rule[match.end() :]
            raise ValueError(f"Invalid rule: `{rule}`, unmatched substring: `{left}`")
        if match["default"]:
            rules.append(Rule(None, "", ""))
        elif match["pattern"] is not None:
            try:
                pattern = compile_java(match["pattern"])
            except ValueError as error:
                raise ValueError(f"Invalid rule: `{rule}`: {error}") from error
            rules.append(Rule(pattern, match["replacement"], match["case"]))
    return tuple(rules)


def short_name(name: str, rules: Iterable[Rule]) -> str:
    """Return the name by the first rule that fits; ValueError when none does."""
    for rule in rules:
        found = rule.apply(name)
        if found is not None:
            return found
    raise ValueError(f"No rules apply to {name}, rules {len(tuple(rules))}")
