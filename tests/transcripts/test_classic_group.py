"""Runs the transcripts of the classic group protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.classic_group_commands import Transcript
from tests.transcripts.datadriven import run_transcript

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("classic_group_*.txt")))
def test_classic_group(name: str, rewrite: bool) -> None:  # noqa: FBT001 - a fixture
    """Each command leaves the trace that stands below it."""
    run_transcript(HERE / name, Transcript().run, rewrite=rewrite)
