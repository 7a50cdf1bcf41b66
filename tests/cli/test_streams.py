"""`ottla streams describe`: text and picture of a program's topology."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from click.testing import CliRunner

from ottla.cli.commands.streams import streams

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
from ottla.streams import StreamsBuilder

builder = StreamsBuilder()
builder.stream("in").filter(lambda key, value: value).to("out")
"""
TEXT = """\
Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [in])
      --> KSTREAM-FILTER-0000000001
    Processor: KSTREAM-FILTER-0000000001 (stores: [])
      --> KSTREAM-SINK-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000002 (topic: out)
      <-- KSTREAM-FILTER-0000000001

"""


def test_describe_prints_the_text_of_kafka(tmp_path: Path) -> None:
    """As `Topology.describe().toString()`."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    found = CliRunner().invoke(streams, ["describe", str(program)])
    assert (found.exit_code, found.output) == (0, TEXT)


def test_describe_draws_a_picture(tmp_path: Path) -> None:
    """A box for each node."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    arguments = ["describe", str(program), "--svg", str(tmp_path / "app.svg")]
    assert CliRunner().invoke(streams, arguments).exit_code == 0
    root = ET.parse(tmp_path / "app.svg").getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 3


def test_a_program_without_a_topology_is_refused(tmp_path: Path) -> None:
    """The message says what is missing."""
    program = tmp_path / "app.py"
    program.write_text("")
    found = CliRunner().invoke(streams, ["describe", str(program)])
    assert found.exit_code == 2
    assert "defines neither `topology` nor `builder`" in found.output
