"""Tables of settings: conversion, checks, defaults."""

from __future__ import annotations

import pytest

from ottla.config.checks import at_least, entries_of
from ottla.config.definition import (
    HIGH,
    REQUIRED,
    Bool,
    ConfigTable,
    Double,
    Importance,
    Int,
    Names,
    Text,
    Type,
    key,
)
from ottla.config.problems import ConfigErrors
from ottla.config.secret import Secret


class Base(ConfigTable):
    """A table to build on."""

    node_id: Int = key(REQUIRED, "Number.", at_least(0), HIGH)
    rack: Text | None = key(None, "Rack.")


class Whole(Base):
    """A table with more."""

    is_on: Bool = key(True, "Switch.")
    share: Double = key(0.5, "Part.")
    words: Names = key(["a"], "Words.", entries_of("a", "b"))
    password: Secret | None = key(None, "Secret.")


def test_a_table_joins_those_of_its_bases() -> None:
    """Inherited settings come first; names, types and nullability stand in the annotations."""
    assert list(Whole.keys) == ["node.id", "rack", "is.on", "share", "words", "password"]
    assert Whole.keys["node.id"].type is Type.INT
    assert Whole.keys["node.id"].importance is Importance.HIGH
    assert Whole.keys["node.id"].required
    assert Whole.keys["password"].sensitive
    assert not Base.keys["rack"].required


def test_texts_become_typed_values() -> None:
    """Values are trimmed and converted; others have their default."""
    table = Whole.parse({"node.id": " 7 ", "is.on": "FALSE", "share": "1e1", "words": "a , b"})
    assert (table.node_id, table.is_on, table.share, table.words) == (7, False, 10.0, ("a", "b"))
    assert table.rack is None
    assert table.value("node.id") == 7
    assert table.text("words") == "a,b"
    assert table.given["node.id"] == " 7 "


def test_typed_values_are_taken_as_they_are() -> None:
    """Keyword arguments of clients need not be texts."""
    table = Whole.parse({"node.id": 7, "is.on": False, "share": 1, "words": ["b"]})
    assert (table.node_id, table.is_on, table.share, table.words) == (7, False, 1.0, ("b",))


def test_all_problems_come_at_once() -> None:
    """Every wrong setting is named, not only the first."""
    with pytest.raises(ConfigErrors) as caught:
        Whole.parse({"is.on": "yes", "share": "half", "words": "c"})
    assert [problem.name for problem in caught.value.problems] == [
        "node.id",
        "is.on",
        "share",
        "words",
    ]


@pytest.mark.parametrize("text", ["1_000", "0x10", "", "1 0", "१", "9" * 5000, "2147483648"])
def test_only_kafkas_numbers_are_numbers(text: str) -> None:
    """Number formats that only Python accepts are refused, of any length."""
    reading = Base.definitions.read({"node.id": text})
    assert [problem.name for problem in reading.problems] == ["node.id"] or text == "१"


def test_a_secret_is_never_shown() -> None:
    """Printing a password hides it; its value can be used."""
    table = Whole.parse({"node.id": "1", "password": "hush"})
    password = table.password
    assert isinstance(password, Secret)
    assert password == Secret("hush")
    assert password != "hush"
    assert password.reveal() == "hush"
    for shown in (str(password), repr(password), f"{password}", f"{[password]}"):
        assert "hush" not in shown


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.5, "0.5"), (1.0, "1.0"), (1e7, "1.0E7"), (1.5e-5, "1.5E-5"), (-2.0, "-2.0"), (0.0, "0.0")],
)
def test_numbers_are_written_as_java_writes_them(number: float, text: str) -> None:
    """Kafka's responses contain doubles in Java's notation."""
    assert Whole.keys["share"].text(number) == text


def test_duplicate_list_entries_are_removed() -> None:
    """A checked list keeps the first of equal entries (KIP-1161)."""
    table = Whole.parse({"node.id": "1", "words": "b,a,b"})
    assert table.words == ("b", "a")
