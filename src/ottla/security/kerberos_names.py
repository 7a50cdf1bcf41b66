"""Kerberos principal names, and the rules that map them to user names.

Kafka: org.apache.kafka.common.security.kerberos.{KerberosName, KerberosRule, KerberosShortNamer}.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.security.java_regex import compile_java, replace_all

if TYPE_CHECKING:
    from collections.abc import Sequence

RULES: Final = "sasl.kerberos.principal.to.local.rules"
_NAME: Final = re.compile(r"([^/@]*)(/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?",
    re.ASCII,
)
_PARAMETER: Final = re.compile(r"\$(\d*)", re.ASCII)
_NOT_SIMPLE: Final = re.compile("[/@]")


class NoMatchingRule(ValueError):
    """A principal name that no rule maps."""


class KerberosName(NamedTuple):
    """`service/host@REALM`, where host and realm may be missing."""

    service: str
    host: str | None = None
    realm: str | None = None

    def __str__(self) -> str:
        host = "" if self.host is None else f"/{self.host}"
        return f"{self.service}{host}" + ("" if self.realm is None else f"@{self.realm}")


def parse_name(text: str) -> KerberosName:
    """Read a principal's name; ValueError when it is malformed."""
    match = _NAME.fullmatch(text)
    if match is not None:
        return KerberosName(match[1], match[3], match[4])
    if "@" in text:
        raise ValueError(f"Malformed Kerberos name: {text}")
    return KerberosName(text)


class KerberosRule(NamedTuple):
    """One rule; the default one takes the first component of names of the default realm."""

    text: str
    default_realm: str | None
    """Set for DEFAULT only."""
    components: int = 0
    format: str = ""
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    repeats: bool = False
    case: str = ""

    def apply(self, parameters: Sequence[str]) -> str | None:
        """Return the short name for realm and components, None when the rule does not fit."""
        if self.default_realm is not None:
            found = parameters[1] if self.default_realm == parameters[0] else None
        else:
            found = self._replaced(parameters)
        if found is not None and _NOT_SIMPLE.search(found):
            raise NoMatchingRule(f"Non-simple name {found} after auth_to_local rule {self.text}")
        if found is None or not self.case:
            return found
        return found.lower() if self.case == "L" else found.upper()

    def _replaced(self, parameters: Sequence[str]) -> str | None:
        if len(parameters) - 1 != self.components:
            return None
        base = _PARAMETER.sub(lambda found: self._parameter(found[1], parameters), self.format)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.pattern is None:
            return base
        try:
            return replace_all(self.pattern, self.replacement, base, only_first=not self.repeats)
        except ValueError as error:
            raise NoMatchingRule(f"{error} in rule {self.text}") from error

    def _parameter(self, number: str, parameters: Sequence[str]) -> str:
        if not number:
            raise NoMatchingRule(f"bad format in username mapping in {number}")
        last, index = len(parameters) - 1, int(number[:9])
        if index > last:
            text = f"index {number} from {self.format} is outside of the valid range 0 to {last}"
            raise NoMatchingRule(text)
        return parameters[index]


def parse_kerberos_rules(rules: Sequence[str], default_realm: str) -> tuple[KerberosRule, ...]:
    """Read sasl.kerberos.principal.to.local.rules; ValueError when one is invalid."""
    return tuple(_parse_rule(rule.strip(), default_realm) for rule in rules)


def _parse_rule(rule: str, default_realm: str) -> KerberosRule:
    found = _RULE.match(rule)
    if found is None:
        raise ValueError(f"Invalid rule: {rule}")
    if found.end() != len(rule):
        left = rule[found.end() :]
        raise ValueError(f"Invalid rule: `{rule}`, unmatched substring: `{left}`")
    if found["default"]:
        return KerberosRule(rule, default_realm)
    match, pattern = found["match"], found["pattern"]
    try:
        return KerberosRule(
            rule,
            None,
            int(found["count"]),
            found["format"],
            None if match is None else compile_java(match),
            None if pattern is None else compile_java(pattern),
            found["replacement"] or "",
            found["repeat"] is not None,
            found["case"] or "",
        )
    except ValueError as error:
        raise ValueError(f"Invalid rule: {rule}: {error}") from error


def kerberos_short_name(name: KerberosName, rules: Sequence[KerberosRule]) -> str:
    """Return the name by the first rule that fits; NoMatchingRule when none does."""
    if name.host is None and name.realm is None:
        return name.service
    realm = name.realm or ""
    parameters = [realm, name.service] + ([] if name.host is None else [name.host])
    for rule in rules:
        found = rule.apply(parameters)
        if found is not None:
            return found
    shown = ", ".join(rule.text for rule in rules)
    raise NoMatchingRule(f"No rules apply to {name}, rules [{shown}]")
