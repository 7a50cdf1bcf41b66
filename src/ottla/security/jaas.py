"""Reads the text of `sasl.jaas.config`: one login module and its options.

Only the grammar is read. The module's name selects nothing and loads no code, so that a text from
an untrusted source cannot run a class (CVE-2023-25194). Quotation marks, escapes, comments and
numbers are those of java.io.StreamTokenizer, for a password must be the one that Kafka reads.

Kafka: org.apache.kafka.common.security.JaasConfig; org.apache.kafka.common.security.JaasContext,
org.apache.kafka.common.security.JaasUtils.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.security.sasl.gssapi import GSSAPI
from ottla.security.sasl.oauthbearer import OAUTHBEARER
from ottla.security.sasl.plain import PLAIN
from ottla.security.sasl.scram import HASHES

if TYPE_CHECKING:
    from collections.abc import Iterator

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_BLANK: Final = re.compile("[\x00-\x20]+")
_COMMENT: Final = re.compile(r"/\*[\s\S]*?(?:\*/|\Z)|//[^\n\r]*|/[\s\S]?[^\n\r]*")
"""A slash alone begins a comment, too: Java's tokenizer has it as a comment character, and does
not look at the character after it."""
_WORD: Final = re.compile(r"[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\xa0-\U0010ffff-]*")
_NUMBER: Final = re.compile(r"-?[0-9]*\.?[0-9]*")
_QUOTED: Final = re.compile(
    r""""((?:\\[\s\S]|[^\\"\n\r])*)(?:"|\\?\Z|(?=[\n\r]))|'((?:\\[\s\S]|[^\\'\n\r])*)(?:'|\\?\Z|(?=[\n\r]))"""
)
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|([\s\S]))")
_LETTERS: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


class JaasConfig(NamedTuple):
    """A login module's class name and its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasConfig({self.module})"


class _Token(NamedTuple):
    """A word or a quoted text; else a sign, "" for a number."""

    text: str | None
    sign: str = ""
    end: int = 0
    """The position after it."""


def parse_jaas(text: str) -> JaasConfig:
    """Read one entry; ValueError says what is wrong and contains no option's value."""
    tokens = _tokens(text)
    module = next(tokens, None)
    if module is None:
        raise ValueError("JAAS config property does not contain any login modules")
    if module.text is None:
        raise ValueError("JAAS config does not begin with the name of a login module")
    flag = next(tokens, _Token(None)).text
    if flag is None or flag.lower() not in _FLAGS:
        # the first word is not named: a password may stand where the whole text belongs
        raise ValueError("login module control flag is not available in the JAAS config")
    options: dict[str, str] = {}
    for token in tokens:
        if token.sign == ";":
            break
        value = None
        if token.text is not None and next(tokens, _Token(None)).sign == "=":
            value = next(tokens, _Token(None)).text
        if token.text is None or value is None:
            # a key that is read may be a part of a value without quotation marks
            raise ValueError(
                f"Value not specified for key {len(options) + 1} in JAAS config: a value that does "
                "not begin with a letter, or has other characters than letters, digits and -_.$, "
                "needs quotation marks"
            )
        options[token.text] = value
    else:
        raise ValueError("JAAS config entry not terminated by semi-colon")
    if next(tokens, None) is not None:
        raise ValueError("only one login module is allowed in a JAAS config")
    return JaasConfig(module.text, options)


def read_sections(text: str) -> dict[str, list[str]]:
    """Read a login file: the texts of the entries of each section; ValueError if it is malformed.

    The entries themselves are not validated.
    """
    sections: dict[str, list[str]] = {}
    tokens = _tokens(text)
    for name in tokens:
        opening = next(tokens, _Token(None))
        if name.text is None or opening.sign != "{":
            raise ValueError(f"section {len(sections) + 1} of the login file has no name or no {{")
        if name.text in sections:
            raise ValueError(f"section {name.text} of the login file is there twice")
        entries = sections[name.text] = []
        start = opening.end
        for token in tokens:
            if token.sign == "}":
                break
            if token.sign == ";":
                entries.append(text[start : token.end])
                start = token.end
        else:
            raise ValueError(f"section {name.text} of the login file does not end with }};")
        if next(tokens, _Token(None)).sign != ";":
            raise ValueError(f"section {name.text} of the login file does not end with }};")
    return sections


def _tokens(text: str) -> Iterator[_Token]:
    """Yield the tokens; a quoted text also ends with its line, as in Java."""
    position = 0
    while position < len(text):
        for form in (_BLANK, _COMMENT):
            skipped = form.match(text, position)
            if skipped is not None:
                break
        if skipped is not None:
            position = skipped.end()
            continue
        match = _QUOTED.match(text, position)
        if match is not None:
            inside = match[1] if match[1] is not None else match[2]
            token = _Token(_ESCAPE.sub(_unescaped, inside))
        elif (match := _WORD.match(text, position)) is not None:
            token = _Token(match[0])
        elif (match := _NUMBER.match(text, position)) is not None and match.end() > position:
            token = _Token(None)
        else:
            token = _Token(None, text[position])
        position = position + 1 if match is None or match.end() == position else match.end()
        yield token._replace(end=position)


def _unescaped(escape: re.Match[str]) -> str:
    octal, char = escape.groups()
    return chr(int(octal, 8)) if octal else _LETTERS.get(char, char)


OPTIONS_VARIABLE: Final = "KAFKA_OPTS"
SERVER: Final = "KafkaServer"
"""The section of a broker; `<listener>.KafkaServer` is that of one listener."""
CLIENT: Final = "KafkaClient"
_OPTION: Final = re.compile(
    r"""-Djava\.security\.auth\.login\.config==?(?:"([^"]*)"|'([^']*)'|(\S+))"""
)
_MECHANISMS: Final = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": tuple(HASHES),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
    "Krb5LoginModule": (GSSAPI,),
}
"""By the last part of a login module's class; modules of other vendors end in the same names."""


def login_file_path(options: str) -> str | None:
    """Return the file that the options of a Java process name last, None without one."""
    path = None
    for option in _OPTION.finditer(options):
        path = next(part for part in option.groups() if part is not None)
    return path


def entries_by_mechanism(text: str, *sections: str) -> dict[str, str]:
    """Return the JAAS texts of the first of these sections that exists, by mechanism.

    Raises ValueError for a file, or an entry of the section, that Java could not read.
    """
    known = read_sections(text)
    entries = next((known[name] for name in sections if name in known), [])
    found: dict[str, str] = {}
    for entry in entries:
        module = parse_jaas(entry).module.rpartition(".")[2]
        for mechanism in _MECHANISMS.get(module, ()):
            found.setdefault(mechanism, entry)
    return found
