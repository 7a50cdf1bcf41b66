"""The nearest known name, for error messages about unknown options and commands.

Kafka: argparse4j's messages have the same form.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the nearest of the known names; empty if no name is similar.

    `--json`, which Kafka's tools do not have, is for its misspellings alone.
    """
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    if near == ["--json"] and not get_close_matches(name, near, cutoff=0.75):
        return []
    return near


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message that proposes the nearest name, or an empty text."""
    near = near_names(name, known)
    return f" Did you mean '{near[0]}'?" if near else ""
