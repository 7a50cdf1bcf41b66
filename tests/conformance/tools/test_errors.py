"""The names of Java's exception classes that our tools print, against Kafka's own table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.cli.output.failures import class_name
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance


def test_each_code_has_the_name_of_its_class(kafka: Kafka) -> None:
    """Every error code is printed by the class that Kafka throws for it."""
    classes = kafka.compile(Path(__file__).parents[1] / "java" / "ErrorClasses.java")
    lines = kafka.run("ErrorClasses", classes=classes).stdout.splitlines()
    expected = {int(code): name for code, name in (line.split() for line in lines)}
    ours = {int(code): class_name(code) for code in ErrorCode if code is not ErrorCode.NONE}
    assert ours == expected
