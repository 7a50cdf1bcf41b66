"""Problems of a configuration, collected, with the nearest name for unknown ones.

Kafka: org.apache.kafka.common.config.ConfigException, which stops at the first problem.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConfigProblem(NamedTuple):
    """One invalid setting: its dotted name, the given text and Kafka's message."""

    name: str
    value: str | None
    message: str

    def __str__(self) -> str:
        return self.message


class ConfigErrors(ValueError):
    """All problems found; the text has one line for each."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.message for problem in self.problems))


def invalid(name: str, value: object, reason: str | None = None) -> ConfigProblem:
    """Return Kafka's message about an invalid value."""
    ending = f": {reason}" if reason else ""
    text = None if value is None else str(value)
    shown = "null" if text is None else text
    return ConfigProblem(name, text, f"Invalid value {shown} for configuration {name}{ending}")


def unknown(name: str, value: str | None, known: Iterable[str]) -> ConfigProblem:
    """Return the problem of an unknown name, with the nearest known one if any."""
    meant = nearest(name, known)
    proposal = f"; did you mean {meant}?" if meant else ""
    return ConfigProblem(name, value, f"Unknown configuration {name}{proposal}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the nearest known name, None when none is similar.

    Similarity of the letters decides. Names that differ only by an abbreviation or by separators
    rank higher; so do names with the same first word, because typing errors are more frequent at
    the end of a dotted name than at its start.
    """
    searched = _SEPARATORS.sub(".", name.lower())
    best, best_score = None, 0.0
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(searched)
    for candidate in sorted(known):
        matcher.set_seq1(candidate)
        needed = max(best_score, _NEAR) - _LARGEST_BONUS
        if matcher.real_quick_ratio() < needed or matcher.quick_ratio() < needed:
            continue
        score = matcher.ratio() + _bonus(searched, candidate.lower())
        if score > best_score:
            best, best_score = candidate, score
    return best if best_score >= _NEAR else None


_SEPARATORS = re.compile(r"[-_.]+")
_NEAR = 0.75
_LARGEST_BONUS = 0.3


def _bonus(searched: str, candidate: str) -> float:
    if searched.replace(".", "") == _SEPARATORS.sub("", candidate):
        return _LARGEST_BONUS
    if searched and candidate.startswith(searched):
        return 0.15
    return (
        0.02 if candidate.split(".", maxsplit=1)[0] == searched.split(".", maxsplit=1)[0] else 0.0
    )
