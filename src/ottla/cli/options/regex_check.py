"""Validates regular expressions as a broker does, with RE2's error texts.

Kafka: com.google.re2j.Pattern, which `kafka-consumer-groups.sh --validate-regex` uses.
"""

from __future__ import annotations

import re

# Error texts of Python's engine and of RE2.
_COMPLAINTS = (
    ("missing ), unterminated", "missing closing )"),
    ("unterminated character set", "missing closing ]"),
    ("unbalanced parenthesis", "regexp/syntax: internal error"),
    ("nothing to repeat", "missing argument to repetition operator"),
    ("multiple repeat", "invalid nested repetition operator"),
    ("min repeat greater", "invalid repeat count"),
    ("the repetition number is too large", "invalid repeat count"),
    ("bad character range", "invalid character class range"),
    ("bad escape (end of pattern)", "trailing backslash at end of expression"),
    ("bad escape", "invalid escape sequence"),
    ("unknown extension", "invalid or unsupported Perl syntax"),
)
_UNKNOWN_TO_RE2 = (
    (re.compile(r"(?<!\\)(\\\\)*\(\?<[=!]"), "invalid named capture"),
    (re.compile(r"(?<!\\)(\\\\)*\(\?([=!]|>|\()"), "invalid or unsupported Perl syntax"),
    (re.compile(r"(?<!\\)(\\\\)*\\[1-9]"), "invalid escape sequence"),
)


def re2_problem(pattern: str) -> str | None:
    """Return the error of a pattern, None for a valid one."""
    for syntax, problem in _UNKNOWN_TO_RE2:
        if syntax.search(pattern):
            return problem
    try:
        re.compile(pattern)
    except re.error as error:
        known = (words for text, words in _COMPLAINTS if text in error.msg)
        return next(known, error.msg)
    return None
