"""Reads the text of `sasl.jaas.config`: one login module and its options.

Only the grammar is read. The module's name selects nothing and loads no code, so that a text from
an untrusted source cannot run a class (CVE-2023-25194).

Kafka: org.apache.kafka.common.security.JaasConfig.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<sign>[=;])|(?P<word>[^\s=;"']+))"""
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class JaasConfig(NamedTuple):
    """A login module's class name and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasConfig({self.module})"


def parse_jaas(text: str) -> JaasConfig:
    """Read one entry; ValueError says what is wrong and contains no option's value."""
    tokens = _tokens(text)
    if len(tokens) < 2:
        raise ValueError("JAAS config property does not contain any login modules")
    module, flag, *rest = tokens
    if flag.lower() not in _FLAGS:
        raise ValueError(
            f"login module control flag is not available in the JAAS config of {module}"
        )
    if not rest or rest[-1] != ";":
        raise ValueError("JAAS config entry not terminated by semi-colon")
    options: dict[str, str] = {}
    position = 0
    end = len(rest) - 1
    while position < end:
        if position + 2 >= end + 1 or rest[position + 1] != "=":
            raise ValueError(f"Value not specified for key '{rest[position]}' in JAAS config")
        options[rest[position]] = rest[position + 2]
        position += 3
    if ";" in options.values():
        raise ValueError("only one login module is allowed in a JAAS config")
    return JaasConfig(module, options)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("JAAS config has a quotation mark without its counterpart")
        quoted = match["quoted"]
        if quoted is None:
            tokens.append(match["sign"] or match["word"])
        else:
            tokens.append(_ESCAPE.sub(r"\1", quoted[1:-1]))
        position = match.end()
    return tokens
