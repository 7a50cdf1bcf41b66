r"""Regular expressions and replacements with the meaning that java.util.regex gives them.

Kafka's mapping rules hold Java's patterns: `\w`, `\d`, `\s` and `(?i)` mean ASCII only, `.`
leaves out all line terminators, groups are named `(?<name>…)`, classes may be nested and
intersected. A pattern is translated to one for `re`; what has no counterpart there is refused.

Kafka: java.util.regex.{Pattern, Matcher}, the part that maps names.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from typing import Final

_LINE_ENDS: Final = r"\n\r\x85\u2028\u2029"
_ANY_BUT_LINE_ENDS: Final = f"[^{_LINE_ENDS}]"
_END: Final = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
_HORIZONTAL: Final = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL: Final = rf"\x0b\f{_LINE_ENDS}"
_CLASSES: Final = {
    **{letter: f"\\{letter}" for letter in "dDwWsS"},
    "h": _HORIZONTAL,
    "v": _VERTICAL,
}
_NEGATED: Final = {"H": _HORIZONTAL, "V": _VERTICAL}
_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS: Final = {
    "b": r"\b",
    "B": r"\B",
    "A": r"\A",
    "z": r"\Z",
    "Z": _END,
    "R": rf"(?:\r\n|[{_VERTICAL}])",
}
_POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r"\s",
}
_QUANTIFIER: Final = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?", re.ASCII)
_GROUP: Final = re.compile(
    r"\(\?(?:<([a-zA-Z][a-zA-Z0-9]*)>|([:=!>]|<[=!])|([is]*(?:-[is]+)?)([:)]))"
)
_HEX: Final = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|x\{([0-9a-fA-F]{1,6})\}")
_OCTAL: Final = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})")
_PROPERTY: Final = re.compile(r"[pP](?:\{([^}]*)\}|(.))")
_REFERENCE: Final = re.compile(r"k<([a-zA-Z][a-zA-Z0-9]*)>|([1-9])")


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of Java's; ValueError when it is invalid or cannot be translated."""
    try:
        return re.compile(_Translation(pattern).translate(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"cannot use the regular expression {pattern}: {error}") from error


def replace_all(
    pattern: re.Pattern[str], replacement: str, text: str, *, only_first: bool = False
) -> str:
    """Replace matches as String.replaceAll or replaceFirst; ValueError for a bad reference.

    As in Java a reference is looked at only when there is a match. After an empty match the next
    one begins a character later, where `re.sub` would first look for a longer one.
    """
    found: list[str] = []
    position = begin = 0
    while begin <= len(text) and (match := pattern.search(text, begin)) is not None:
        found.append(text[position : match.start()])
        found.append(_expanded(match, replacement))
        position = match.end()
        begin = position + (match.end() == match.start())
        if only_first:
            break
    return "".join(found) + text[position:]


def _expanded(match: re.Match[str], replacement: str) -> str:
    r"""Return a replacement: `\x` is x, `$1` and `${name}` are groups, as long as they exist."""
    found: list[str] = []
    position, size = 0, len(replacement)
    while position < size:
        char = replacement[position]
        position += 1
        if char == "\\":
            if position == size:
                raise ValueError("character to be escaped is missing")
            found.append(replacement[position])
            position += 1
        elif char == "$":
            named = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}").match(replacement, position)
            if named is not None:
                if named[1] not in match.re.groupindex:
                    raise ValueError(f"No group with name {{{named[1]}}}")
                found.append(match[named[1]] or "")
                position = named.end()
                continue
            digits = re.compile("[0-9]+").match(replacement, position)
            if digits is None:
                raise ValueError("Illegal group reference")
            number, length = int(digits[0][0]), 1
            if number > match.re.groups:
                raise ValueError(f"No group {number}")
            while length < len(digits[0]) and int(digits[0][: length + 1]) <= match.re.groups:
                length += 1
            found.append(match[int(digits[0][:length])] or "")
            position += length
        else:
            found.append(char)
    return "".join(found)


class _Translation:
    """Walks one pattern; `position` is after what has been translated."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self._is_dotall = False
        self._flags: list[str] = []
        """Flags set by `(?i)` in this group: each is a scoped group until the group's end."""
        self._groups: list[tuple[bool, list[str]]] = []
        """What the two were outside of each open group."""

    def translate(self) -> str:
        """Return the pattern for `re`."""
        parts: list[str] = []
        while self.position < len(self.pattern):
            char = self.pattern[self.position]
            if char == "(":
                parts.append(self._opened())
                continue
            if char in "*+?{":
                match = _QUANTIFIER.match(self.pattern, self.position)
                if match is None:
                    raise self._refused("an illegal repetition")
                parts.append(match[0])
                self.position = match.end()
                continue
            self.position += 1
            if char == "\\":
                parts.append(self._escaped())
            elif char == "[":
                parts.append(self._class())
            elif char == ")":
                if not self._groups:
                    raise self._refused("an unmatched closing parenthesis")
                parts.append(")" * (len(self._flags) + 1))
                self._is_dotall, self._flags = self._groups.pop()
            elif char == "|":
                parts.append(")" * len(self._flags) + "|" + "".join(self._flags))
            else:
                any_character = "." if self._is_dotall else _ANY_BUT_LINE_ENDS
                other = {".": any_character, "^": r"\A", "$": _END}
                parts.append(other.get(char) or re.escape(char))
        return "".join(parts) + ")" * len(self._flags)

    def _opened(self) -> str:
        """Translate the begin of a group, or flags for the rest of this one."""
        match = _GROUP.match(self.pattern, self.position)
        if match is None and self.pattern.startswith("(?", self.position):
            raise self._refused("a group or a flag that is not supported")
        if match is None:
            self._groups.append((self._is_dotall, self._flags))
            self._flags = []
            self.position += 1
            return "("
        self.position = match.end()
        name, _, flags, end = match.groups()
        if end != ")":
            self._groups.append((self._is_dotall, self._flags))
            self._flags = []
        if end:
            on, _, off = flags.partition("-")
            self._is_dotall = (self._is_dotall or "s" in on) and "s" not in off
            opened = f"(?{flags}:" if flags else "(?:"
            if end == ")":
                self._flags.append(opened)
            return opened
        return f"(?P<{name}>" if name else match[0]

    def _refused(self, what: str) -> ValueError:
        return ValueError(f"the regular expression {self.pattern} has {what} at {self.position}")

    def _next(self) -> str:
        if self.position >= len(self.pattern):
            raise self._refused("no end of a class or of an escape")
        self.position += 1
        return self.pattern[self.position - 1]

    def _escaped(self) -> str:
        """Translate what follows a backslash outside of classes."""
        quoted = self._quoted()
        if quoted is not None:
            return "".join(map(re.escape, quoted))
        found = _REFERENCE.match(self.pattern, self.position)
        if found is not None:
            self.position = found.end()
            return f"(?P={found[1]})" if found[1] else f"(?:\\{found[2]})"
        letter = self.pattern[self.position : self.position + 1]
        if letter in _ANCHORS and letter:
            self.position += 1
            return _ANCHORS[letter]
        simple, negated = self._escaped_class()
        if simple is None:
            return re.escape(self._escaped_character())
        return f"[^{simple}]" if negated else f"[{simple}]"

    def _quoted(self) -> str | None:
        r"""Return the text of \Q…\E."""
        if not self.pattern.startswith("Q", self.position):
            return None
        text, end, _ = self.pattern[self.position + 1 :].partition("\\E")
        self.position += 1 + len(text) + len(end)
        return text

    def _escaped_class(self) -> tuple[str | None, bool]:
        r"""Return the inside of a class for \w, \p{L} and the like, and whether it is negated."""
        letter = self.pattern[self.position : self.position + 1]
        if letter and letter in _CLASSES:
            self.position += 1
            return _CLASSES[letter], False
        if letter in _NEGATED:
            self.position += 1
            return _NEGATED[letter], True
        found = _PROPERTY.match(self.pattern, self.position)
        if found is None:
            return None, False
        name = found[1] or found[2] or ""
        inside = _POSIX.get(name) or _category(name.removeprefix("Is"))
        if inside is None:
            raise self._refused(f"the unsupported property {name}")
        self.position = found.end()
        return inside, found[0][0] == "P"

    def _escaped_character(self) -> str:
        """Return the character that an escape stands for."""
        for form, base in ((_HEX, 16), (_OCTAL, 8)):
            found = form.match(self.pattern, self.position)
            if found is not None:
                self.position = found.end()
                return chr(int(next(filter(None, found.groups())), base))
        char = self._next()
        if char == "c":
            return chr(ord(self._next()) ^ 0x40)
        if char in _CHARACTERS:
            return _CHARACTERS[char]
        if char.isascii() and char.isalnum():
            self.position -= 1
            raise self._refused(f"the unsupported escape {char}")
        return char

    def _class(self) -> str:
        """Translate a class after its opening bracket: to an expression for one character."""
        negated = self.pattern.startswith("^", self.position)
        self.position += negated
        found = self._members()
        if not negated:
            return found
        return f"(?:(?!{found})(?s:.))"

    def _members(self) -> str:
        """Translate the members up to the closing bracket; && binds less than their union."""
        inside = ""
        others: list[str] = []
        is_first = True
        while True:
            if self.pattern.startswith("&&", self.position):
                self.position += 2
                if is_first or self.pattern.startswith(("]", "&&"), self.position):
                    raise self._refused("an intersection with nothing")
                rest = self._members()
                return f"(?:(?={rest}){_union(inside, others)})"
            char = self._next()
            if char == "]" and not is_first:
                return _union(inside, others)
            is_first = False
            if char == "[":
                others.append(self._class())
                continue
            if char == "\\":
                quoted = self._quoted()
                if quoted is not None:
                    inside += "".join(map(_in_class, quoted))
                    continue
                simple, is_negated = self._escaped_class()
                if simple is not None and not is_negated:
                    inside += simple
                    continue
                if simple is not None:
                    others.append(f"[^{simple}]")
                    continue
                char = self._escaped_character()
            inside += self._range(char)

    def _range(self, first: str) -> str:
        """Return a character or a range of them, as the inside of a class."""
        if not self.pattern.startswith("-", self.position):
            return _in_class(first)
        if self.pattern[self.position + 1 : self.position + 2] in ("]", "[", ""):
            return _in_class(first)
        if self.pattern.startswith("-&&", self.position):
            return _in_class(first)
        self.position += 1
        last = self._next()
        if last == "\\":
            last = self._escaped_character()
        if last < first:
            raise self._refused("an illegal range of characters")
        return f"{_in_class(first)}-{_in_class(last)}"


def _in_class(char: str) -> str:
    """Return a character with no meaning of its own within a class."""
    return char if char.isalnum() or char == "_" or char > "\x7f" else f"\\x{ord(char):02x}"


def _union(inside: str, others: list[str]) -> str:
    if not others:
        return f"[{inside}]"
    return "(?:" + "|".join([f"[{inside}]", *others] if inside else others) + ")"


@cache
def _category(name: str) -> str | None:
    """Return the characters of a general category, "L" or "Lu", as the inside of a class."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(name) and name:
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    if not ranges:
        return None
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
