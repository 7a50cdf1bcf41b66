"""Definitions that code declares while it runs: as ConfigDefTest of Kafka has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.config.broker import BrokerConfig
from ottla.config.checks import at_least, entries_of, one_of
from ottla.config.definition import (
    HIGH,
    REQUIRED,
    ConfigDefinitions,
    ConfigValue,
    Type,
    Width,
    reference,
)
from ottla.config.group import GroupConfig
from ottla.config.problems import ConfigErrors, ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

MISSING = 'Missing required configuration "{}" which has no default value.'


class Integers:
    """Proposes 4 and 5 to children, 1 to 3 to parents."""

    def __init__(self, *, has_parent: bool) -> None:
        self._has_parent = has_parent

    def valid_values(self, _name: str, parsed: Mapping[str, Any]) -> list[Any]:
        """Return numbers; children need the value of their parent."""
        assert not self._has_parent or "a" in parsed
        return [4, 5] if self._has_parent else [1, 2, 3]

    def visible(self, _name: str, _parsed: Mapping[str, Any]) -> bool:
        """Show all."""
        return True


def four() -> ConfigDefinitions:
    """Define a with the dependents b and c, and d with b."""
    definitions = ConfigDefinitions()
    dependents = {"a": ("b", "c"), "b": (), "c": (), "d": ("b",)}
    for order, (name, names) in enumerate(dependents.items(), start=1):
        definitions.define(
            name,
            Type.INT,
            importance=HIGH,
            group="group",
            order=order,
            width=Width.SHORT,
            dependents=names,
            recommender=Integers(has_parent=name in "bc"),
        )
    return definitions


def test_validate() -> None:
    """Every setting has a value, errors and recommended values; two parents are two errors."""
    assert four().validate({"a": "1", "d": "10"}) == [
        ConfigValue("a", 1, [1, 2, 3]),
        ConfigValue("b", None, [4, 5], [MISSING.format("b")] * 2),
        ConfigValue("c", None, [4, 5], [MISSING.format("c")]),
        ConfigValue("d", 10, [1, 2, 3]),
    ]


def test_validate_undefined_dependents() -> None:
    """A dependent without a definition is an invisible setting with an error."""
    definitions = ConfigDefinitions().define("a", Type.INT, dependents=("d",))
    error = "d is referred in the dependents, but not defined."
    assert definitions.validate({"a": "1"})[1] == ConfigValue("d", None, [], [error], visible=False)
    with pytest.raises(ConfigErrors, match="referred in the dependents, but not defined: d"):
        definitions.parse({"a": "1"})


def test_an_invalid_text_is_checked_as_null_too() -> None:
    """Kafka's two errors of a text that is no number, where null is invalid."""
    definitions = ConfigDefinitions().define("n", Type.INT, "3", check=at_least(1))
    assert [value.errors for value in definitions.validate({"n": "x"})] == [
        [
            "Invalid value x for configuration n: Not a number of type INT",
            "Invalid value null for configuration n: Value must be non-null",
        ]
    ]
    assert definitions.validate({"n": "0"})[0].errors == [
        "Invalid value 0 for configuration n: Value must be at least 1"
    ]


def test_a_recommender_may_refuse() -> None:
    """Its error is one of the setting."""

    class Refusing(Integers):
        def valid_values(self, _name: str, _parsed: Mapping[str, Any]) -> list[Any]:
            raise ConfigErrors([ConfigProblem("a", None, "no values")])

    definitions = ConfigDefinitions()
    definitions.define("a", Type.INT, 1, recommender=Refusing(has_parent=False))
    assert definitions.validate({}) == [ConfigValue("a", 1, [], ["no values"])]


def test_parse_and_define() -> None:
    """Defaults are texts or values; a name is defined once, with a valid default."""
    definitions = (
        ConfigDefinitions()
        .define("tasks", Type.INT, "1", "Tasks.", at_least(1), group="Common")
        .define("topics", Type.LIST, "", "Topics.", entries_of())
        .define("mode", Type.STRING, "fast", "Mode.", one_of("fast", "safe"), group="Other")
        .define("name", Type.STRING)
    )
    parsed = definitions.parse({"name": "n", "topics": "a,b,a"})
    assert parsed == {"tasks": 1, "topics": ("a", "b"), "mode": "fast", "name": "n"}
    assert definitions.groups == ["Common", "Other"]
    assert definitions.keys["name"].default is REQUIRED
    assert definitions.keys["name"].display_name == "name"
    with pytest.raises(ConfigErrors, match="Configuration name is defined twice"):
        definitions.define("name", Type.STRING)
    with pytest.raises(ConfigErrors, match="Invalid value none for configuration m: String must"):
        definitions.define("m", Type.STRING, "none", check=one_of("fast"))
    with pytest.raises(ConfigErrors, match="Missing required configuration"):
        definitions.parse({})


def test_tables_are_definitions() -> None:
    """A table's settings are validated as declared ones, and every default is valid."""
    for table in (BrokerConfig, GroupConfig):
        values = {value.name: value for value in table.definitions.validate({})}
        assert list(values) == list(table.keys)
        assert not [value for value in values.values() if value.errors and value.value is not None]


def test_reference() -> None:
    """A row by name, with what the check allows; internal settings have none."""
    definitions = (
        ConfigDefinitions()
        .define("b", Type.INT, 1, "A | B.", at_least(1))
        .define("a", Type.STRING, doc="A.", check=one_of("x", "y"))
        .define("c", Type.STRING, None, "No.", internal=True)
    )
    assert reference(definitions, {"b"}).rstrip().splitlines() == [
        "| setting | type | default | valid values | meaning | dynamic |",
        "|---|---|---|---|---|---|",
        "| `a` | string | required | `x`, `y` | A. |  |",
        "| `b` | int | `1` | at least `1` | A \\| B. | yes |",
    ]
