"""The pytest fixtures with `--ottla-url`: the examples of docs/testing.md on real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.testing.test_document import count, plain, run, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance


def test_the_examples_pass_on_real_kafka(real_kafka: RealKafka, tmp_path: Path) -> None:
    """Tests that start a node of their own are skipped, and no other."""
    chosen = [example for _, example in plain() if "conftest.py" not in example.files]
    for number, example in enumerate(chosen):
        write(tmp_path / f"example{number}", example)
    outcomes, output = run(tmp_path, "--ottla-url", real_kafka.bootstrap, "-rs")
    own = sum(
        text.count("(kafka_cluster)") + text.count("@pytest.mark.kafka")
        for example in chosen
        for text in example.files.values()
    )
    assert outcomes == {"passed": count(chosen) - own, "skipped": own}, output
    assert output.count("needs a broker of its own, but --ottla-url names") >= 1
