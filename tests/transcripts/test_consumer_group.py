"""Runs the transcripts of consumer groups and of their migration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.consumer_group_commands import ConsumerTranscript
from tests.transcripts.datadriven import run_transcript

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("consumer_group_*.txt")))
def test_consumer_group(name: str, rewrite: bool) -> None:  # noqa: FBT001 - a fixture
    """Each command leaves the trace that stands below it."""
    run_transcript(HERE / name, ConsumerTranscript().run, rewrite=rewrite)
