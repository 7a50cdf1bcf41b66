"""Principals of client certificates: the subject's name, shortened by rules.

Kafka: org.apache.kafka.common.security.ssl.SslPrincipalMapper.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,|$)"
)
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""The names that RFC 2253 has a short form of."""
_OBJECT_IDS: Final = {
    "emailAddress": "1.2.840.113549.1.9.1",
    "serialNumber": "2.5.4.5",
    "surname": "2.5.4.4",
    "givenName": "2.5.4.42",
    "title": "2.5.4.12",
    "dnQualifier": "2.5.4.46",
}
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')
_IA5, _PRINTABLE, _UTF8 = 0x16, 0x13, 0x0C
_PRINTABLE_TEXT: Final = re.compile(r"[A-Za-z0-9 '()+,\-./:=?]*")
_GROUP: Final = re.compile(r"\$(\d)")


def subject_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Return a subject, as `SSLSocket.getpeercert` has it, in the form of RFC 2253."""
    return ",".join("+".join(_attribute(*one) for one in names) for names in reversed(subject))


def _attribute(name: str, value: str) -> str:
    short = _SHORT.get(name)
    if short is not None:
        escaped = _SPECIAL.sub(r"\\\1", value)
        if escaped.startswith(("#", " ")):
            escaped = "\\" + escaped
        if escaped.endswith(" "):
            escaped = escaped[:-1] + "\\ "
        return f"{short}={escaped}"
    kind = _UTF8
    if name == "emailAddress":
        kind = _IA5
    elif _PRINTABLE_TEXT.fullmatch(value):
        kind = _PRINTABLE
    data = value.encode()
    size = bytes([len(data)]) if len(data) < 0x80 else b"\x82" + len(data).to_bytes(2, "big")
    return f"{_OBJECT_IDS.get(name, name)}=#{(bytes([kind]) + size + data).hex()}"


class Rule(NamedTuple):
    """One rule; without a pattern the name stays as it is."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        """Return the short name, None when the rule does not fit."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        found = _GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement)
        found = found.replace("\\/", "/")
        if self.case == "L":
            return found.lower()
        return found.upper() if self.case == "U" else found


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read ssl.principal.mapping.rules; ValueError when they are invalid."""
    rules: list[Rule] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None or match.end() == position:
            raise ValueError(f"Invalid rule: `{text[position:]}`")
        if match["default"]:
            rules.append(Rule(None, "", ""))
        else:
            try:
                pattern = re.compile(match["pattern"].replace("\\/", "/"))
            except re.error as error:
                raise ValueError(f"Invalid rule: `{text[position:]}`: {error}") from error
            rules.append(Rule(pattern, match["replacement"], match["case"]))
        position = match.end()
    return tuple(rules) or (Rule(None, "", ""),)


def short_name(name: str, rules: Iterable[Rule]) -> str:
    """Return the name by the first rule that fits; ValueError when none does."""
    for rule in rules:
        found = rule.apply(name)
        if found is not None:
            return found.strip()
    raise ValueError(f"No rules apply to {name}, rules {len(tuple(rules))}")
