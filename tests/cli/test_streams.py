"""`ottla streams describe`: text and picture of a program's topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from ottla.cli.commands.streams import streams
from ottla.streams import Streams

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


@pytest.mark.parametrize(
    "error",
    [
        PySparkException("[STREAM_FAILED] No space left on device SQLSTATE: XXKST\n\tat java"),
        OSError(28, "No space left on device"),
    ],
    ids=["of Spark", "of Python"],
)
def test_an_error_of_a_run_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Without Java's stack trace and Python's, with what to do."""

    def fail(_: Streams) -> NoReturn:
        raise error

    monkeypatch.setattr(Streams, "process_available", fail)
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    options = ["--bootstrap-server", "localhost:1", "--checkpoint", str(tmp_path), "--once"]
    found = CliRunner().invoke(streams, ["run", str(program), *options])
    assert found.exit_code == 1
    (line,) = found.output.splitlines()
    assert line.startswith("Error: ")
    assert "free space on it and start again" in line
