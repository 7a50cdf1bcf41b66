"""The pictures of docs/performance.md show the figures of its tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.draw_figures import PAGE, PICTURES, Picture, rows

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda one: one.name)
def test_a_picture_has_the_figures_of_its_table(picture: Picture) -> None:
    """Labels and values are text in the file; `scripts/draw_figures.py` draws it again."""
    drawn = (ROOT / "docs" / "pictures" / f"performance_{picture.name}.svg").read_text("utf-8")
    shown = re.findall(r">([^<>\n]+)</text>", drawn)
    values = rows(PAGE.read_text(encoding="utf-8"), picture)
    assert [one for one in shown if one in dict(values)] == [label for label, _ in values]
    assert [one for one in shown if re.fullmatch(r"\d+\.\d\d", one)] == [
        f"{value:.2f}" for _, value in values
    ]
