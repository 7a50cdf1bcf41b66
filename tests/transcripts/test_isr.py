"""Runs the transcripts of the in-sync set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.datadriven import run_transcript
from tests.transcripts.isr_commands import Transcript

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("isr_*.txt")))
def test_isr(name: str, rewrite: bool) -> None:  # noqa: FBT001 - a fixture
    """Each command leaves the trace that stands below it."""
    run_transcript(HERE / name, Transcript().run, rewrite=rewrite)
