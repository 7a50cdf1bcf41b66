"""Principals of certificates, mapping rules and JAAS texts, against Java's and Kafka's classes.

An entry of a cluster that moves must fit the same people. Many random cases go through one JVM.
"""

from __future__ import annotations

import random
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.security.distinguished_name import parse_rules, short_name, subject_name
from ottla.security.jaas import parse_jaas
from ottla.security.sasl.gssapi import kerberos_short_name, parse_kerberos_rules, parse_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance
SOURCE = Path(__file__).parent.parent / "java" / "SecurityNames.java"
CASES = 4000
REFUSED = "(refused)"
OBJECT_IDS = [
    *(bytes((0x55, 4, number)) for number in (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 42, 46, 97)),
    bytes.fromhex("2a864886f70d010901"),
    bytes.fromhex("0992268993f22c640119"),
    bytes.fromhex("0992268993f22c640101"),
    bytes.fromhex("883703"),
    bytes.fromhex("2a03"),
]
STRING_TAGS = [12, 19, 20, 22, 27]
OTHER_TAGS = [28, 30, 18, 26, 1, 2, 4]
PIECES = ["a", "Z", "7", " ", "#", ",", "+", '"', "\\", "<", ">", ";", "=", "/", "ü", "日", "\r"]
NAMES = [
    "CN=Kafka1,OU=ServiceUsers,O=Org,C=DE",
    "CN=user",
    "CN=a b.c,OU=x,O=y",
    "OU=x,CN=last",
    "CN=a/b,OU=x",
    "CN=Grüße,OU=x,O=y",
    "CN=x_9-1,1.2.3=#0c0141",
    "",
]
PATTERN_PIECES = [
    "CN=",
    "cn=",
    "(.*?)",
    "(.*)",
    "([^,]+)",
    r"(\w+)",
    r"(\d+)",
    r"\s?",
    ",",
    ".*",
    "OU=x",
    r"[\w\s.&&[^b]]+",
    "(?i)",
    "(?i:cn)",
    "(?<n>C.)",
    "|",
    "^",
    "$",
    r"\p{L}+",
    r"\p{Lu}",
    r"[\p{Alpha}\p{Digit}=]*+",
    r"\Q=a\E",
    r"\/",
    "(a|b)?",
    "[a-z[A-Z]]",
    "[^,[=]]*",
    "(?:O|C)",
    "(?=C)",
    "x{1,2}",
    r"\u0043",
    "[]x]",
    "[x-]",
]
REPLACEMENT_PIECES = [
    "$1",
    "$2",
    "$13",
    "$9",
    "$0",
    "x",
    r"\$",
    r"\\",
    r"\/",
    "${n}",
    "$",
    "@",
    " ",
    "-",
    "Ü",
]
JAAS_PIECES = [
    "a.Plain",
    " required",
    " optional",
    " user",
    ' "q r"',
    "=",
    '"',
    "'",
    ";",
    " ",
    "\n",
    r"\n",
    r"\t",
    r"\101",
    r"\477",
    r"\"",
    r"\\",
    "// c\n",
    "/* c */",
    "/",
    "12",
    "-x",
    ".",
    "$_",
    "ü",
]


@pytest.fixture(scope="module")
def ask(kafka: Kafka) -> Callable[[Iterable[Sequence[str | bytes]]], list[str]]:
    """Return a function that asks Java: REFUSED where it fails."""
    classes = kafka.compile(SOURCE)

    def answers(questions: Iterable[Sequence[str | bytes]]) -> list[str]:
        lines = [
            " ".join([str(word), *(_encoded(argument) for argument in arguments)])
            for word, *arguments in questions
        ]
        done = kafka.run("SecurityNames", classes=classes, stdin="\n".join(lines) + "\n")
        found = done.stdout.splitlines()
        assert len(found) == len(lines)
        return [b64decode(one[1:]).decode() if one[0] == "=" else REFUSED for one in found]

    return answers


def _encoded(argument: str | bytes) -> str:
    data = argument.encode() if isinstance(argument, str) else argument
    return b64encode(data).decode()


def _ours(function: Callable[[], str]) -> str:
    try:
        return function()
    except ValueError:
        return REFUSED


def _compare(cases: Sequence[object], theirs: list[str], ours: list[str]) -> None:
    found = [
        f"{case!r}: Java {their!r}, here {our!r}"
        for case, their, our in zip(cases, theirs, ours, strict=True)
        if their != our
    ]
    assert not found, f"{len(found)} of {len(cases)}:\n" + "\n".join(found[:20])
    assert len(set(theirs)) > len(cases) // 100  # the cases say something
    assert 0 <= theirs.count(REFUSED) < len(cases)


def der(tag: int, content: bytes) -> bytes:
    """Return an element of DER."""
    size = len(content)
    length = bytes([size & 0x7F])
    if size >= 0x80:
        count = (size.bit_length() + 7) // 8
        length = bytes([0x80 + count]) + size.to_bytes(count)
    return bytes([tag]) + length + content


def _subject(rng: random.Random) -> bytes:
    """Return a name of a few attributes of all kinds of strings."""
    parts = []
    for _ in range(rng.randrange(4)):
        attributes = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            value = "".join(rng.choices(PIECES, k=rng.choice((0, 1, 2, 5, 200))))
            tag = rng.choice(STRING_TAGS)
            data = value.encode(rng.choice(("utf-8", "utf-8", "latin-1")), "replace")
            if rng.random() < 0.1:
                tag, data = rng.choice(OTHER_TAGS), value.encode("utf-16-be")
            attributes.append(der(0x30, der(6, rng.choice(OBJECT_IDS)) + der(tag, data)))
        parts.append(der(0x31, b"".join(attributes)))
    return der(0x30, b"".join(parts))


def certificate(subject: bytes) -> bytes:
    """Return as much of a certificate as has a subject."""
    empty = der(0x30, b"")
    fields = der(0xA0, der(2, b"\2")) + der(2, b"\1") + empty + empty + empty + subject
    return der(0x30, der(0x30, fields) + empty)


def test_principals_are_those_of_java(ask: Callable[..., list[str]]) -> None:
    """Attributes with and without a name, all kinds of strings, whatever has to be escaped."""
    rng = random.Random(1)
    cases = [_subject(rng) for _ in range(CASES)]
    theirs = ask([("subject", one) for one in cases])
    ours = [_ours(lambda one=one: subject_name(certificate(one))) for one in cases]  # type: ignore[misc]
    _compare([one.hex() for one in cases], theirs, ours)


def _rules(rng: random.Random) -> str:
    """Return one to three rules, and sometimes an empty or an invalid one."""
    found = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        pattern = "".join(rng.choices(PATTERN_PIECES, k=rng.randrange(5)))
        if rng.random() < 0.4:
            pattern = "^CN=(.*?),.*" + rng.choice(("$", "", "(x)?"))
        replacement = "".join(rng.choices(REPLACEMENT_PIECES, k=rng.randrange(4)))
        case = rng.choice(("", "", "L", "U", "X"))
        found.append(f"RULE:{pattern}/{replacement}/{case}")
    if rng.random() < 0.3:
        found.insert(rng.randrange(len(found) + 1), rng.choice(("DEFAULT", "", "x", " DEFAULT ")))
    return rng.choice((",", " , ", ",\n")).join(found)


def test_mapping_rules_are_those_of_kafka(ask: Callable[..., list[str]]) -> None:
    """The same short name, the same refusal, by rules of every form."""
    rng = random.Random(2)
    cases = [(_rules(rng), rng.choice(NAMES)) for _ in range(CASES)]
    theirs = ask([("rules", *one) for one in cases])
    ours = [_ours(lambda one=one: short_name(one[1], parse_rules(one[0]))) for one in cases]  # type: ignore[misc]
    _compare(cases, theirs, ours)


def test_kerberos_rules_are_those_of_kafka(ask: Callable[..., list[str]]) -> None:
    """They hold the same kind of patterns and replacements."""
    rng = random.Random(3)
    names = ["alice@REALM", "kafka/host-1@REALM", "alice@OTHER", "Grüße@REALM", "a_9@OTHER", "bob"]
    cases = []
    for _ in range(CASES):
        pattern = "".join(rng.choices(["a", r"\w", "@.*", "[^@]", r"\d", "(?i)A", r"(\w*)"], k=2))
        replacement = "".join(rng.choices(["$0", "$1", "x", r"\$", "", "é"], k=3))
        match = rng.choice(("", "(.*)", r"(\w+[@-].*)", "(.*REALM)"))
        parts = rng.choice(("1:$1", "1:$1", "2:$1", "2:$2", "1:$2"))
        rule = f"RULE:[{parts}{rng.choice(('@$0', '-$0', ''))}]{match}"
        rule += rng.choice(("", f"s/{pattern}/{replacement}/{rng.choice(('', 'g'))}"))
        cases.append((rule + rng.choice(("", "/L", "/U")), rng.choice(names)))
    theirs = ask([("kerberos", *one) for one in cases])
    ours = [
        _ours(
            lambda one=one: kerberos_short_name(  # type: ignore[misc]
                parse_name(one[1]), parse_kerberos_rules([one[0]], "REALM")
            )
        )
        for one in cases
    ]
    _compare(cases, theirs, ours)


def test_jaas_texts_are_those_of_kafka(ask: Callable[..., list[str]]) -> None:
    """Escapes, comments, numbers, ends of lines: the same options or the same refusal."""
    rng = random.Random(4)
    cases = []
    for _ in range(CASES):
        text = "".join(rng.choices(JAAS_PIECES, k=rng.randrange(8)))
        if rng.random() < 0.8:
            inside = "".join(rng.choices(JAAS_PIECES, k=rng.randrange(4)))
            text = f'a.Plain required user="{inside}" {text if rng.random() < 0.5 else ""};'
        cases.append(text)
    theirs = ask([("jaas", one) for one in cases])

    def options(text: str) -> str:
        found = parse_jaas(text)
        listed = sorted(found.options.items())
        return found.module + "".join(f"\1{name}\2{value}" for name, value in listed)

    _compare(cases, theirs, [_ours(lambda one=one: options(one)) for one in cases])  # type: ignore[misc]
