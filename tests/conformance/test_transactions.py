"""Kafka answers the transcripts of tests/coordinator/transaction as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.kafka import running_kafka
from tests.coordinator.transaction.commands import Session
from tests.coordinator.transaction.test_transcripts import NAMES, REFUSED, REFUSING, SETTINGS
from tests.transcripts.datadriven import run_transcript

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.kafka import Kafka

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts" / "transactions"


@pytest.fixture(scope="module")
def bootstrap(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a node of Kafka with the settings of the transcripts."""
    with running_kafka(kafka, tmp_path_factory.mktemp("kafka"), SETTINGS) as node:
        yield node.bootstrap


@pytest.mark.parametrize("name", NAMES)
def test_kafka_answers_the_same(name: str, bootstrap: str) -> None:
    """The transcript that Ottla passes is Kafka's."""
    session = Session(bootstrap)
    run_transcript(TRANSCRIPTS / name, session.run, rewrite=False)
    session.close()


def test_kafka_refuses_two_phases_by_default(kafka: Kafka, tmp_path: Path) -> None:
    """With its own default of transaction.two.phase.commit.enable."""
    with running_kafka(kafka, tmp_path, REFUSING) as node:
        session = Session(node.bootstrap)
        run_transcript(TRANSCRIPTS / REFUSED, session.run, rewrite=False)
        session.close()
