"""The table of advice: every row can be found, and no text is left unfilled."""

from __future__ import annotations

import errno
from string import Formatter

import pytest

from ottla.diagnosis.advice import (
    TABLE,
    Advice,
    DiskError,
    Situation,
    Words,
    advice_in,
    advice_on,
    situation_text,
)
from ottla.errors import ErrorCode


def test_a_symptom_has_one_row() -> None:
    """Two rows of a symptom would hide each other; each situation has one."""
    symptoms = [advice.symptom for advice in TABLE]
    assert len(set(symptoms)) == len(symptoms)
    assert set(Situation) <= set(symptoms)
    words = [word for one in symptoms if isinstance(one, Words) for word in one.any_of]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("advice", TABLE, ids=lambda advice: str(advice.symptom))
def test_a_row_has_a_next_step(advice: Advice) -> None:
    """Only situations have values to fill in; a row without a cause follows an error's text."""
    assert advice.next_step
    names = {name for _, name, _, _ in Formatter().parse(advice.cause) if name}
    assert names <= ({"reason", "size"} if isinstance(advice.symptom, Situation) else set())


def test_look_ups() -> None:
    """By code, by the number of a disk's error, by situation, and by words in a text."""
    assert advice_on(ErrorCode.TOPIC_ALREADY_EXISTS) is None
    full = advice_on(DiskError(errno.ENOSPC))
    assert full is not None
    assert full.next_step.startswith("free some space")
    assert (
        situation_text(Situation.UNKNOWN_HOST, reason="no name") == "no name: check the host name"
    )
    words, text = advice_in("java.io.IOException: No space left on device")
    assert words == "No space left on device"
    assert "the disk of the checkpoint, or of Spark's files, is full; free space" in text
    assert advice_in("something else") == ("", "")
