"""Encodes series in the Prometheus text format and in OpenMetrics.

The prometheus-client library takes a second for ten thousand partitions. Here one `%` formats all
lines of a family: the template with its names and labels is cached while the labels are the same
object, and the text of a family while its values are unchanged.

Kafka: no counterpart; its users run an exporter in the JVM. Hot path: benchmarks/metrics.py.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.metrics.families import Family, Kind, Series, Spelling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_END = b"# EOF\n"
_CACHED_FROM = 64
"""Smaller families are not cached: a lookup would cost as much as formatting them."""


class _Cached(NamedTuple):
    labels: Sequence[str]
    template: str
    values: Sequence[Any]
    text: bytes


class Exposition:
    """Encodes series under the names of one spelling; caches templates and texts."""

    def __init__(self, spelling: Spelling = Spelling.CLASSIC) -> None:
        self._spelling = spelling
        self._cached: dict[str, _Cached] = {}

    def render(self, series: Iterable[Series], *, openmetrics: bool = False) -> Iterator[bytes]:
        """Yield the text, one piece a name; each family has one series, or is empty.

        Values are numbers. The sequences of labels and values must not change afterwards.
        """
        for family, labels, values in series:
            for name in family.names(self._spelling) if labels else ():
                head = _head(family, name, openmetrics=openmetrics)
                yield head + self._lines(_sample_name(family, name), labels, values)
        if openmetrics:
            yield _END

    def _lines(self, name: str, labels: Sequence[str], values: Sequence[Any]) -> bytes:
        if len(labels) < _CACHED_FROM:
            return _formatted(_template(name, labels), values)
        cached = self._cached.get(name)
        if cached is None or cached.labels is not labels:
            template = _template(name, labels)
        elif cached.values is values or cached.values == values:
            return cached.text
        else:
            template = cached.template
        text = _formatted(template, values)
        self._cached[name] = _Cached(labels, template, values, text)
        return text


def _formatted(template: str, values: Sequence[Any]) -> bytes:
    return (template % tuple(map(_number, values))).encode()


def _number(value: Any) -> Any:
    if type(value) is float and not isfinite(value):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"  # noqa: PLR0124
    return value


def _template(name: str, labels: Sequence[str]) -> str:
    return "".join([f"{name}{label.replace('%', '%%')} %s\n" for label in labels])


def _sample_name(family: Family, name: str) -> str:
    return f"{name}_total" if family.kind is Kind.COUNTER else name


def _head(family: Family, name: str, *, openmetrics: bool) -> bytes:
    shown = name if openmetrics else _sample_name(family, name)
    text = family.text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {shown} {text}\n# TYPE {shown} {family.kind.value}\n".encode()
