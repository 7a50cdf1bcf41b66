"""Times of `consumer-groups --reset-offsets`: --to-datetime and --by-duration.

Kafka: org.apache.kafka.common.utils.Utils.getDateTime, java.time.Duration.parse.
"""

from __future__ import annotations

import re
import time
from calendar import timegm
from datetime import UTC, datetime

from ottla.cli.groups.usage import GroupCommandError

# As java.time.Duration: an optional sign before the whole and before each number.
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
# As java.text.SimpleDateFormat with yyyy-MM-dd'T'HH:mm:ss.SSSX: trailing text is ignored.
_MOMENT = re.compile(
    r"([0-9]{1,4})-([0-9]{1,2})-([0-9]{1,2})T([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})\.([0-9]{1,3})"
    r"(?![0-9])(?:Z|([+-])([01][0-9]|2[0-3])(?::([0-5][0-9]))?)"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def parse_moment(text: str) -> int:
    """Parse YYYY-MM-DDThh:mm:ss.sss with Z, +hh, +hh:mm or no zone (UTC) to ms since the epoch.

    Raises GroupCommandError with Java's text; digits after the point are milliseconds, as in Java.
    """
    _, separator, clock = text.partition("T")
    if not separator or not clock:
        raise GroupCommandError(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' "
            "according to ISO8601 format"
        )
    zoned = text if set("+-Z") & set(clock) else f"{text}Z"
    match = _MOMENT.match(zoned)
    try:
        if match is None:
            raise ValueError(zoned)
        numbers = [int(part or 0) for part in match.groups()[:7]]
        year, month, day, hour, minute, second, milliseconds = numbers
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise GroupCommandError(f'java.text.ParseException: Unparseable date: "{zoned}"') from error
    ahead_s = int(match[9] or 0) * 3600 + int(match[10] or 0) * 60
    if match[8] == "-":
        ahead_s = -ahead_s
    return (timegm(moment.timetuple()) - ahead_s) * 1000 + milliseconds


def parse_duration(text: str) -> int:
    """Parse PnDTnHnMn.nS to nanoseconds; raises GroupCommandError with Java's text."""
    match = _DURATION.fullmatch(text)
    if match is None or all(match[name] is None for name in _SECONDS):
        raise GroupCommandError("Text cannot be parsed to a Duration")
    seconds = sum(int(match[name] or 0) * size for name, size in _SECONDS.items())
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    if (match["seconds"] or "").startswith("-"):
        fraction = -fraction
    duration = seconds * 1_000_000_000 + fraction
    return -duration if match["sign"] == "-" else duration


def moment_before_now(duration: str) -> int:
    """Return the time of a duration ago in ms; raises GroupCommandError beyond 64 bits."""
    moment_ms = (time.time_ns() - parse_duration(duration)) // 1_000_000
    if not -(1 << 63) <= moment_ms < 1 << 63:
        raise GroupCommandError("Text cannot be parsed to a Duration: overflow")
    return moment_ms
