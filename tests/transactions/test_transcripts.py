"""Runs the transcripts of transactions on a node; tests/conformance runs them on Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing.cluster import Cluster
from tests.transactions.commands import Session
from tests.transcripts.datadriven import run_transcript

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
NAMES = sorted(path.name for path in HERE.glob("*.txt"))
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Return the address of a node that all transcripts use, each with ids of its own."""
    with Cluster(config=SETTINGS) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("name", NAMES)
def test_transcript(name: str, bootstrap: str, rewrite: bool) -> None:  # noqa: FBT001 - a fixture
    """Each command is answered as its transcript says, which is what Kafka answers."""
    session = Session(bootstrap)
    run_transcript(HERE / name, session.run, rewrite=rewrite)
    session.close()
