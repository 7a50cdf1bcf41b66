"""What is wrong with a configuration, all of it at once, and the name that was probably meant.

Kafka: org.apache.kafka.common.config.ConfigException, which stops at the first problem.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConfigProblem(NamedTuple):
    """One wrong setting: its dotted name, the text given for it, and Kafka's sentence about it."""

    name: str
    value: str | None
    message: str

    def __str__(self) -> str:
        return self.message


class ConfigErrors(ValueError):
    """Every problem found, not only the first; the text has one line for each."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.message for problem in self.problems))


def invalid(name: str, value: object, reason: str | None = None) -> ConfigProblem:
    """Word a refused value as Kafka does."""
    ending = f": {reason}" if reason else ""
    text = None if value is None else str(value)
    shown = "null" if text is None else text
    return ConfigProblem(name, text, f"Invalid value {shown} for configuration {name}{ending}")


def unknown(name: str, value: str | None, known: Iterable[str]) -> ConfigProblem:
    """Word an unknown name, with the nearest known one when there is one."""
    meant = nearest(name, known)
    proposal = f"; did you mean {meant}?" if meant else ""
    return ConfigProblem(name, value, f"Unknown configuration {name}{proposal}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, None when nothing is near.

    Likeness of the letters decides. A name that was only cut short, or only has other
    separators, counts as nearer; so does one with the same first word, since slips sit at the
    end of a dotted name more often than at its beginning.
    """
    wanted = _SEPARATORS.sub(".", name.lower())
    best, best_score = None, 0.0
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    for candidate in sorted(known):
        matcher.set_seq1(candidate)
        needed = best_score - _LARGEST_BONUS
        if matcher.real_quick_ratio() < needed or matcher.quick_ratio() < needed:
            continue
        score = matcher.ratio() + _bonus(wanted, candidate.lower())
        if score > best_score:
            best, best_score = candidate, score
    return best if best_score >= _NEAR else None


_SEPARATORS = re.compile(r"[-_.]+")
_NEAR = 0.75
_LARGEST_BONUS = 0.3


def _bonus(wanted: str, candidate: str) -> float:
    if wanted.replace(".", "") == _SEPARATORS.sub("", candidate):
        return _LARGEST_BONUS
    if wanted and candidate.startswith(wanted):
        return 0.15
    return 0.02 if candidate.split(".", maxsplit=1)[0] == wanted.split(".", maxsplit=1)[0] else 0.0
