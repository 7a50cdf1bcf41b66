"""The line that ends a command says what to check where Kafka's own text does not."""

from __future__ import annotations

import pytest

from ottla.cli.commands.topics import topics
from ottla.cli.output.failures import failure_text, failures_reported, with_next_step
from ottla.diagnosis.advice import TABLE
from ottla.errors import ConfigError, ErrorCode, KafkaError, OttlaError

AWAY = "org.apache.kafka.common.errors.CoordinatorNotAvailableException: "


def test_a_bare_text_of_kafka_is_followed_by_the_next_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kafka's text comes first, as a script may look for it; all is one line."""
    with pytest.raises(SystemExit), failures_reported():
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    line = capsys.readouterr().err
    assert line.startswith(f"{AWAY}The coordinator is not available. Check that enough brokers")
    assert "ottla topics --describe --topic __consumer_offsets" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "ask b1"), f"{AWAY}ask b1"),
        (KafkaError(ErrorCode.NON_EMPTY_GROUP), "The group is not empty."),
        (OttlaError("no Java"), "no Java"),
    ],
)
def test_other_texts_stay_as_they_are(error: Exception, line: str) -> None:
    """Those that say more than the code, of codes without a step, and of our own errors."""
    assert failure_text(error).endswith(line)


def test_a_wrong_setting_is_named_without_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    """As by Kafka's tools."""
    with pytest.raises(SystemExit), failures_reported():
        raise ConfigError("Missing required configuration")
    assert capsys.readouterr().err == "Missing required configuration\n"


def test_steps_name_flags_that_there_are() -> None:
    """Each flag of `ottla topics`; texts are sentences."""
    flags = {flag for option in topics.params for flag in option.opts}
    steps = {it.symptom: it.next_step for it in TABLE if isinstance(it.symptom, ErrorCode)}
    assert len(steps) == 10
    for code, step in steps.items():
        words = step.replace(";", " ").replace(".", " ").split()
        of_topics = words[words.index("topics") :] if "topics" in words else []
        assert {one for one in of_topics if one.startswith("--")} <= flags
        assert step.endswith(".")
        assert with_next_step(code.text, KafkaError(code)) == f"{code.text} {step}"
