"""What `ottla` exports, at run time and for type checkers."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import ottla
from ottla import errors

SOURCE = Path(ottla.__file__)


def imported_for_checkers() -> dict[str, str]:
    """Return the names that the module imports for type checkers, with their modules."""
    return {
        one.name: str(node.module)
        for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module != "importlib"
        for one in node.names
    }


def test_checkers_see_what_python_loads() -> None:
    """Each name is the same object, whether it is loaded on first use or imported at once."""
    found = imported_for_checkers()
    assert sorted(found) == sorted(ottla.__all__) == dir(ottla)
    for name, module in found.items():
        if name != "__version__":
            assert vars(ottla).get("_MODULES", {}).get(name, "ottla.errors") == module
            assert getattr(ottla, name).__name__ == name


def test_both_packages_are_marked_as_typed() -> None:
    """Type checkers read the annotations of packages with a py.typed (PEP 561)."""
    with (SOURCE.parents[2] / "pyproject.toml").open("rb") as file:
        data = tomllib.load(file)["tool"]["setuptools"]["package-data"]
    for package in ("ottla", "pyspark_ottla"):
        assert (SOURCE.parents[1] / package / "py.typed").is_file()
        assert "py.typed" in data[package]


def test_every_exception_is_exported() -> None:
    """`ottla.errors` has no exception that `ottla` lacks, but a base and those of nodes only."""
    of_nodes = {"LocalDiskError", "TooManyElements"}
    assert set(errors.__all__) - set(ottla.__all__) - of_nodes == {"NamedError"}


def test_a_misspelt_name_is_an_attribute_error() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match=r"^module 'ottla' has no attribute 'Prodcer'$"):
        _ = ottla.Prodcer  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["Producer", "AsyncProducer", "Admin", "AsyncAdmin"])
def test_a_mapping_as_first_argument_is_refused_with_the_way_to_give_it(name: str) -> None:
    """As for the consumer, whose positional arguments are topics."""
    with pytest.raises(TypeError) as caught:
        getattr(ottla, name)({"bootstrap.servers": "localhost:9092"})
    assert str(caught.value) == (
        f'{name}() takes settings as keywords (bootstrap_servers="localhost:9092") or as '
        'config={"bootstrap.servers": "localhost:9092"}, not as a positional dict'
    )
