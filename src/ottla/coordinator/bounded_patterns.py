"""Regular expressions of clients, whose compilation and matching have a bound.

RE2 matches in time linear in expression and text, but both factors are a client's: it writes out
counted repetitions before it looks at its memory limit (`x{1000}` 3,000 times take a second), and
an expression with thousands of optional parts takes tens of milliseconds a name. So the size is
counted before RE2 sees the expression, and callers spend `cost` in slices.

Kafka: none; com.google.re2j.Pattern there is used by threads of its own.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

MAX_SIZE: Final = 12_000
"""Characters and classes once repetitions are written out: counted and compiled in about 10 ms. A
choice of 500 names of 20 characters has as many."""
MAX_REPEATING_SIZE: Final = 5_000
"""Instructions of an expression with repetitions, each of which may be active at each character."""
MAX_COST: Final = 1 << 19
"""Instructions times characters in one turn of the loop, at up to 20 ns each."""
_MAX_MATCH_COST: Final = MAX_REPEATING_SIZE * 249
"""Of one match: the longest name of a topic. Only transactional ids can be longer."""
_MAX_MEMORY_BYTES: Final = 1 << 18
_CLASS_SIZE: Final = 25
"""What a class of Unicode costs in characters: it has hundreds of ranges."""
_FOLDED_SIZE: Final = 3
"""What a character costs whose case does not matter: it is a class."""
_FOLDS: Final = re.compile(r"\(\?[a-zA-Z-]*i")
_REPEATS: Final = re.compile(r"[*+{]|(?<!(?<!\\)\()\?")
_COUNTS: Final = re.compile(r"\{(\d{1,4})(?:,(\d{0,4}))?\}")
_TOO_LARGE: Final = "pattern too large"


class BoundedPattern:
    """A compiled expression."""

    __slots__ = ("_expression", "_repeating_size")

    def __init__(self, text: str) -> None:
        """Raise re2.error for an expression that RE2 refuses, or that is too large."""
        if written_out_size(text) > MAX_SIZE:
            raise re2.error(_TOO_LARGE)
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MAX_MEMORY_BYTES
        options.never_capture = True  # what groups have matched is copied at each character
        self._expression: Any = re2.compile(text, options)
        is_repeating = _REPEATS.search(text) is not None
        self._repeating_size = self._expression.programsize if is_repeating else 0
        if self._repeating_size > MAX_REPEATING_SIZE:
            raise re2.error(_TOO_LARGE)

    def cost(self, name: str) -> int:
        """Return the cost of a match, of which a turn may spend MAX_COST."""
        return MAX_COST // 1000 + self._repeating_size * len(name)

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name; re2.error where that costs too much."""
        if self._repeating_size * len(name) > _MAX_MATCH_COST:
            raise re2.error(_TOO_LARGE)
        return self._expression.fullmatch(name) is not None


def written_out_size(text: str) -> int:
    """Return an upper bound of the parts of an expression when its repetitions are written out.

    What RE2 refuses may have any size; nothing is counted beyond MAX_SIZE.
    """
    factor = _FOLDED_SIZE if _FOLDS.search(text) else 1
    groups, last, position, total = [0], 0, 0, 0
    while position < len(text) and total * factor <= MAX_SIZE:
        character = text[position]
        counts = _COUNTS.match(text, position) if character == "{" else None
        if counts is not None:
            times = max(int(counts[1]), int(counts[2] or 0), 1)
            groups[-1] += last * (times - 1)
            total += last * (times - 1)
            last *= times
            position = counts.end()
            continue
        if character == "(":
            groups.append(0)
        elif character == ")" and len(groups) > 1:
            last = groups.pop() + 1
            groups[-1] += last
            total += 1
        else:
            end, last = _atom(text, position)
            groups[-1] += last
            total += last
            position = end
            continue
        position += 1
    return total * factor


def _atom(text: str, position: int) -> tuple[int, int]:
    """Return the end and the size of the part of an expression that begins at a position."""
    if text.startswith("\\Q", position):
        end = text.find("\\E", position)
        end = len(text) if end < 0 else end + 2
        return end, end - position
    if text[position] == "\\":
        return position + 2, _CLASS_SIZE if text[position + 1 : position + 2] in "pP" else 1
    if text[position] != "[":
        return position + 1, 1
    begin, size = position, 1
    position += 2 if text.startswith("[^", position) else 1
    first = position
    while position < len(text) and (text[position] != "]" or position == first):
        named = text.find(":]", position + 2) if text.startswith("[:", position) else -1
        if named >= 0:
            position = named + 2
            continue
        if text[position] == "\\":
            size += _CLASS_SIZE if text[position + 1 : position + 2] in "pP" else 1
            position += 1
        position += 1
    return position + 1, size + (position - begin) // 10
