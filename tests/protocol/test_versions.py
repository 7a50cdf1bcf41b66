"""Version ranges in Kafka's notation."""

from __future__ import annotations

import pytest

from ottla.protocol.schema import _MAX_VERSION, NO_VERSIONS, Versions, parse_versions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", Versions(3, 3)),
        ("0-4", Versions(0, 4)),
        ("7+", Versions(7, _MAX_VERSION)),
        ("none", NO_VERSIONS),
    ],
)
def test_a_range_is_read_and_printed(text: str, expected: Versions) -> None:
    """Each form reads as its range and prints as it was written."""
    assert parse_versions(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "x", "1-x", "+", "-"])
def test_anything_else_is_refused(text: str) -> None:
    """What is no range raises ValueError."""
    with pytest.raises(ValueError, match="invalid literal"):
        parse_versions(text)


@pytest.mark.parametrize(
    ("version", "inside"), [(1, False), (2, True), (4, True), (5, False), ("2", False)]
)
def test_a_range_holds_both_ends(version: object, inside: bool) -> None:  # noqa: FBT001 - a table
    """Both ends belong to a range; what is no number does not."""
    assert (version in Versions(2, 4)) is inside


def test_no_versions_holds_nothing() -> None:
    """The empty range has not even version 0."""
    assert 0 not in NO_VERSIONS
