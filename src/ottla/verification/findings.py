"""What a check reports: one finding a line, with its meaning and the next step.

Kafka: none.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """The effect of a finding on the data."""

    DAMAGE = "damage"
    """Records or settings are lost, or wrong ones would be served."""
    REPAIRABLE = "repairable"
    """The file is rebuilt from others without loss, by a start or by `ottla log-repair`."""
    NOTICE = "notice"
    """A node ignores or removes it."""


class Finding(NamedTuple):
    """One problem of one file or directory."""

    severity: Severity
    path: str
    """Relative to the log directory."""
    problem: str
    meaning: str
    next_step: str

    def __str__(self) -> str:
        return (
            f"{self.severity.upper()} {self.path}: {self.problem}; {self.meaning}: {self.next_step}"
        )


def damage(path: str, problem: str, meaning: str, next_step: str) -> Finding:
    """Return a finding of lost or wrong data."""
    return Finding(Severity.DAMAGE, path, problem, meaning, next_step)


def repairable(path: str, problem: str, meaning: str, next_step: str) -> Finding:
    """Return a finding of a file that other files make again."""
    return Finding(Severity.REPAIRABLE, path, problem, meaning, next_step)


def notice(path: str, problem: str, meaning: str, next_step: str) -> Finding:
    """Return a finding without effect on data."""
    return Finding(Severity.NOTICE, path, problem, meaning, next_step)
