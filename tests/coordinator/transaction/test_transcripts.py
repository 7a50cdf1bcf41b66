"""Runs the transcripts of transactions on a node; tests/conformance runs them on Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing.cluster import Cluster
from tests.coordinator.transaction.commands import Session
from tests.transcripts.datadriven import run_transcript

if TYPE_CHECKING:
    from collections.abc import Iterator

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "transactions"
REFUSED = "two_phase_refused.txt"
NAMES = sorted(path.name for path in TRANSCRIPTS.glob("*.txt") if path.name != REFUSED)
OWN_NAMES = sorted(path.name for path in (TRANSCRIPTS / "own").glob("*.txt"))
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",
}


REFUSING = {**SETTINGS, "transaction.two.phase.commit.enable": "false"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Return the address of a node that all transcripts use, each with ids of its own."""
    with Cluster(config=SETTINGS) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("name", NAMES)
def test_transcript(name: str, bootstrap: str, rewrite: bool) -> None:  # noqa: FBT001 - a fixture
    """Each command is answered as its transcript says, which is what Kafka answers."""
    session = Session(bootstrap)
    run_transcript(TRANSCRIPTS / name, session.run, rewrite=rewrite)
    session.close()


def test_two_phases_are_refused_by_default(rewrite: bool) -> None:  # noqa: FBT001 - a fixture
    """A node that does not allow transactions without a timeout."""
    with Cluster(config=REFUSING) as cluster:
        session = Session(cluster.bootstrap)
        run_transcript(TRANSCRIPTS / REFUSED, session.run, rewrite=rewrite)
        session.close()


@pytest.mark.parametrize("name", OWN_NAMES)
def test_what_kafka_lacks(name: str, bootstrap: str, rewrite: bool) -> None:  # noqa: FBT001 - a fixture
    """Prepared transactions are taken over, which Kafka 4.3 refuses (KIP-939)."""
    session = Session(bootstrap)
    run_transcript(TRANSCRIPTS / "own" / name, session.run, rewrite=rewrite)
    session.close()
