"""Regular expressions of clients: what is counted before RE2 sees one, and what is refused."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.bounded_patterns import MAX_SIZE, BoundedPattern, written_out_size

ATOMS = ["x", ".", r"\.", "[a-c]", "[^)]", "[]a(]", r"[\])]", r"\Q)(\E", "[[:alpha:])]", r"\x{41}"]
"""Each is one part; brackets and braces in them begin and end nothing."""
SHAPES = st.recursive(
    st.sampled_from(ATOMS).map(lambda text: (text, 1)),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(
            lambda parts: ("".join(text for text, _ in parts), sum(size for _, size in parts))
        ),
        st.tuples(inner, st.integers(1, 9)).map(
            lambda pair: (f"(?:{pair[0][0]}){{{pair[1]}}}", pair[0][1] * pair[1])
        ),
        st.tuples(inner, st.integers(0, 3), st.integers(4, 9)).map(
            lambda some: (f"({some[0][0]}){{{some[1]},{some[2]}}}", some[0][1] * some[2])
        ),
    ),
    max_leaves=12,
)


@given(SHAPES)
def test_a_size_is_never_less_than_what_is_written_out(shape: tuple[str, int]) -> None:
    """Or an expression could hide its repetitions behind a bracket in a class or a quotation."""
    text, size = shape
    assert written_out_size(text) >= min(size, MAX_SIZE)


@pytest.mark.parametrize(
    "text",
    [
        "x{1000}" * 3_000,
        r"(\Q)\E" + "x" * 3_000 + "){1000}",
        "([)]" + "x" * 3_000 + "){1000}",
        r"\pL" * 10_000,
        "(?i)" + "k" * 9_000,
    ],
)
def test_what_takes_long_to_compile_is_refused_before(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RE2 looks at its own limit of memory after it has written out what is repeated."""
    compiled: list[str] = []
    monkeypatch.setattr(re2, "compile", lambda text, _options: compiled.append(text))
    with pytest.raises(re2.error, match="pattern too large"):
        BoundedPattern(text)
    assert not compiled


@pytest.mark.parametrize("text", ["(|a)*" * 2_000, "(.*?.*?){500}" * 3, r"\pL{1000}"])
def test_what_takes_long_to_match_is_refused(text: str) -> None:
    """Each part may be active at each character of a name."""
    with pytest.raises(re2.error, match="pattern too large"):
        BoundedPattern(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("|".join(f"orders.region-{number:05}" for number in range(500)), "orders.region-00499"),
        (r"^(?:[a-z0-9-]{1,63}\.){2}orders-[0-9]{1,5}$", "a.b.orders-1"),
        ("|".join(f"prefix-{number}-.*" for number in range(200)), "prefix-199-x"),
        (r"(?i)ORDERS\..+", "orders.eu"),
        ("(" * 500 + "x" + ")" * 500, "x"),
    ],
)
def test_what_clients_use_is_matched(text: str, name: str) -> None:
    """Choices of hundreds of names or prefixes, and counted parts of names."""
    pattern = BoundedPattern(text)
    assert pattern.matches(name)
    assert not pattern.matches(f"{name}\nx")
