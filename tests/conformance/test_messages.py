"""Random messages of every class and version, written by Ottla and by Kafka's own classes."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ottla.errors import UnsupportedVersion
from ottla.protocol import codec
from tests.conformance.kafka import HERE, Kafka
from tests.conformance.messages import (
    Paired,
    java_class,
    pair,
    to_json,
)
from tests.protocol.messages import message_classes, random_message

if TYPE_CHECKING:
    from ottla.protocol.schema import Struct

pytestmark = pytest.mark.conformance

ROUNDS = 12


class Case(NamedTuple):
    """A random message and the names both sides give it."""

    java: str
    version: int
    message: Struct
    paired: Paired

    @property
    def cls(self) -> type[Struct]:
        """The class of the message."""
        return type(self.message)

    def __str__(self) -> str:
        return f"{type(self.message).__name__} v{self.version}"


@pytest.fixture(scope="module")
def cases(kafka: Kafka) -> list[Case]:
    """Make some messages of every class and version, with a fixed seed."""
    rng = Random(4_3_0)
    definitions = kafka.definitions()
    return [
        Case(
            java_class(definitions[name]),
            version,
            random_message(cls, version, rng),
            pair(cls, definitions[name]),
        )
        for name, cls in sorted(message_classes().items())
        for version in range(cls.versions.lowest, cls.versions.highest + 1)
        for _ in range(ROUNDS)
    ]


def ask(kafka: Kafka, questions: list[str]) -> list[str]:
    """Put all questions to one JVM."""
    classes = kafka.compile(HERE / "java" / "MessageOracle.java")
    text = "".join(f"{question}\n" for question in questions)
    answers = kafka.run("MessageOracle", classes=classes, stdin=text).stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


def test_ottla_writes_the_bytes_that_kafka_writes(kafka: Kafka, cases: list[Case]) -> None:
    """The same message, given to Kafka as JSON, has the same bytes."""
    questions = [
        f"encode {case.java} {case.version} "
        + json.dumps(to_json(case.message, case.paired, case.version))
        for case in cases
    ]
    for case, answer in zip(cases, ask(kafka, questions), strict=True):
        ours = codec.to_bytes(case.message, case.version).hex()
        assert ours == answer, f"{case}: {case.message}"


def test_kafka_reads_what_ottla_meant(kafka: Kafka, cases: list[Case]) -> None:
    """Kafka reads Ottla's bytes to the end and finds the same values; so does Ottla."""
    encoded = [codec.to_bytes(case.message, case.version) for case in cases]
    questions = [
        f"decode {case.java} {case.version} {data.hex()}"
        for case, data in zip(cases, encoded, strict=True)
    ]
    for case, data, answer in zip(cases, encoded, ask(kafka, questions), strict=True):
        left, rewritten, theirs = answer.split(" ", 2)
        assert left == "0", f"{case}: {answer}"
        assert rewritten == data.hex(), str(case)
        ours = to_json(case.message, case.paired, case.version, records_as_size=True)
        assert json.loads(theirs) == ours, str(case)
        assert codec.decode(type(case.message), case.version, data) == case.message, str(case)


def test_what_a_version_cannot_carry_is_refused_alike(kafka: Kafka, cases: list[Case]) -> None:
    """A message made for one version is refused at another, or has the same bytes."""
    every = [
        (case, version)
        for case in cases[::ROUNDS]
        for version in range(case.cls.versions.lowest, case.cls.versions.highest + 1)
    ]
    questions = [
        f"encode {case.java} {version}/{case.version} "
        + json.dumps(to_json(case.message, case.paired, case.version))
        for case, version in every
    ]
    for (case, version), theirs in zip(every, ask(kafka, questions), strict=True):
        try:
            ours = codec.to_bytes(case.message, version).hex()
        except UnsupportedVersion:
            ours = "error org.apache.kafka.common.errors.UnsupportedVersionException"
        except ValueError:
            ours = "error java.lang.NullPointerException"
        assert ours == theirs.partition(":")[0], f"{case} at {version}: {theirs}"


def test_unknown_tagged_fields_are_passed_on_alike(kafka: Kafka, cases: list[Case]) -> None:
    """A field of a version to come goes through both sides unchanged."""
    grown = []
    for case in cases:
        tagless = all(field.tag is None for field in case.cls.fields)
        if case.version in case.cls.flexible and tagless:
            data = codec.to_bytes(case.message, case.version)
            grown.append((case, data[:-1] + b"\x01\x63\x02hi"))
    questions = [f"decode {case.java} {case.version} {data.hex()}" for case, data in grown]
    for (case, data), answer in zip(grown, ask(kafka, questions), strict=True):
        ours = codec.decode(case.cls, case.version, data)
        assert ours.unknown_tagged_fields == ((0x63, b"hi"),)
        assert codec.to_bytes(ours, case.version) == data, str(case)
        assert answer.split(" ", 2)[1] == data.hex(), str(case)
