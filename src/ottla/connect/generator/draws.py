"""Random numbers and texts as a pure function of a seed.

Python promises equal results of its own generator for `random()` only, so integers are drawn here.

Kafka: none.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_MASK: Final = (1 << 64) - 1
_CHARACTERS_MAX: Final = 1024
"""Of a text that a pattern makes."""
_PATTERN_MAX: Final = 200
_DIGITS: Final = "0123456789"
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ALPHANUMERIC: Final = _DIGITS + _LETTERS
_CLASSES: Final = {"d": _DIGITS, "w": f"{ALPHANUMERIC}_", "s": " "}
_REPEAT: Final = re.compile(r"\{(\d{1,4})(?:,(\d{1,4}))?\}|([?*+])")
_REPEAT_MAX: Final = 8
"""Of `*` and `+`, which have no limit."""
_SPECIAL: Final = frozenset("()|^$*+?{}]")


class Draws:
    """The numbers of one record: SplitMix64, begun by a hash of what they depend on.

    >>> [Draws("seed").below(100) for _ in range(2)]
    [59, 59]
    """

    __slots__ = ("_state",)

    def __init__(self, text: str) -> None:
        self._state = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")

    def bits(self) -> int:
        """Return the next 64 bits."""
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        return state ^ (state >> 31)

    def below(self, end: int) -> int:
        """Return a number from 0 up to `end`, which is at most 2^64 and is not reached."""
        return self.bits() * end >> 64

    def fraction(self) -> float:
        """Return a number from 0 up to 1, which is not reached."""
        return float(self.bits() >> 11) * 2.0**-53

    def choice(self, options: Sequence[Any]) -> Any:
        """Return one of the options."""
        return options[self.below(len(options))]

    def text(self, characters: str, length: int) -> str:
        """Return a text of so many of the characters."""
        return "".join([characters[self.below(len(characters))] for _ in range(length)])


class Pattern:
    r"""A text of literals, classes (`[A-Z_]`, `\d`, `\w`, `.`) and repeats (`{2}`, `{1,3}`, `?`).

    >>> Pattern("Item_[1-9][0-9]{0,2}").draw(Draws("seed"))
    'Item_2'
    """

    __slots__ = ("_parts",)

    def __init__(self, pattern: str) -> None:
        """Read a pattern; ValueError, in one line, for anything else of regular expressions."""
        if len(pattern) > _PATTERN_MAX:
            raise ValueError(f"regex has more than {_PATTERN_MAX} characters")
        self._parts: list[tuple[str, int, int]] = []
        """Characters to draw from, and how many at least and at most."""
        at = 0
        while at < len(pattern):
            characters, at = _characters(pattern, at)
            least = most = 1
            if repeat := _REPEAT.match(pattern, at):
                first, second, sign = repeat.groups()
                least = int(first) if first else int(sign == "+")
                most = int(second or first) if first else 1 if sign == "?" else _REPEAT_MAX
                if most < least:
                    raise ValueError(f"regex repeats from {least} to {most} times")
                at = repeat.end()
            self._parts.append((characters, least, most))
        if sum(most for _, _, most in self._parts) > _CHARACTERS_MAX:
            raise ValueError(f"regex makes more than {_CHARACTERS_MAX} characters")

    def draw(self, draws: Draws) -> str:
        """Return a text that the pattern matches."""
        return "".join(
            characters
            if least == most == len(characters) == 1
            else draws.text(characters, least + draws.below(most - least + 1))
            for characters, least, most in self._parts
        )


def _characters(pattern: str, at: int) -> tuple[str, int]:
    """Return the characters that may stand next, and the place after them."""
    first = pattern[at]
    if first == "\\":
        return _escaped(pattern, at)
    if first == ".":
        return ALPHANUMERIC, at + 1
    if first in _SPECIAL:
        raise ValueError(
            f"regex has {first}; it may have characters, [a-z], \\d, \\w, {{2}}, {{1,3}} and ?"
        )
    return _class(pattern, at + 1) if first == "[" else (first, at + 1)


def _escaped(pattern: str, at: int) -> tuple[str, int]:
    following = pattern[at + 1 : at + 2]
    if following in _CLASSES:
        return _CLASSES[following], at + 2
    if not following or following.isalnum():
        raise ValueError(f"regex has \\{following}; it may have \\d, \\w and \\s")
    return following, at + 2


def _class(pattern: str, at: int) -> tuple[str, int]:
    characters: dict[str, None] = {}
    start = at
    while pattern[at : at + 1] not in {"", "]"}:
        if at == start and pattern[at] == "^":
            raise ValueError("regex has [^, which is not supported")
        part, after = _escaped(pattern, at) if pattern[at] == "\\" else (pattern[at], at + 1)
        last = pattern[after + 1 : after + 2]
        if len(part) == 1 and pattern[after : after + 1] == "-" and last not in {"", "]"}:
            if not ord(part) <= ord(last) < ord(part) + _CHARACTERS_MAX:
                raise ValueError(f"regex has the range {part}-{last}")
            part, after = "".join(map(chr, range(ord(part), ord(last) + 1))), after + 2
        characters.update(dict.fromkeys(part))
        at = after
    if not characters or at >= len(pattern):
        raise ValueError("regex has a [ without characters or without its ]")
    return "".join(characters), at + 1
