"""Parameters of which the unit run takes the first, and `scripts/simulate --soaks` the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def with_soaks(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Return values, or tuples of them, for a parametrized test; all but the first are soaks."""
    listed = list(values)
    later = (one if isinstance(one, tuple) else (one,) for one in listed[count:])
    return [*listed[:count], *(pytest.param(*one, marks=pytest.mark.soak) for one in later)]
