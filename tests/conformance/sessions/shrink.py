"""Shrinks a session that shows a difference to a few steps that still show it.

Kafka: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.sessions.play import Found
    from tests.conformance.sessions.steps import Step

MAX_RUNS = 60


def shrink(
    steps: list[Step], found: Found, run: Callable[[list[Step]], Found | None]
) -> tuple[list[Step], Found]:
    """Leave out ever smaller parts while the same API still shows a difference."""
    kept = [step for step in steps if step.number <= found.step.number]
    runs = 0
    for label in sorted({step.label for step in kept} - {found.difference.label}):
        shorter = [step for step in kept if step.label != label]
        runs += 1
        again = run(shorter)
        if again is not None and again.difference.label == found.difference.label:
            found, kept = again, [step for step in shorter if step.number <= again.step.number]
    size = max(len(kept) // 2, 1)
    while runs < MAX_RUNS:
        start = 0
        removed = False
        while start < len(kept) and runs < MAX_RUNS:
            shorter = kept[:start] + kept[start + size :]
            runs += 1
            again = run(shorter)
            if again is not None and again.difference.label == found.difference.label:
                found, removed = again, True
                kept = [step for step in shorter if step.number <= again.step.number]
            else:
                start += size
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return kept, found
