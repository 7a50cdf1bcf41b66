"""Metric families, the two spellings of MBean names, and the text of a scrape.

Existing dashboards and rules use one of two spellings: that of the JMX exporter with its common
example rules (classic), or that of Strimzi's metrics reporter. Both are derived from Kafka's MBean
name, so each function below makes a family from the parts of that name.

Kafka: MBean names as kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=…; no
counterpart; its users run an exporter in the JVM.
"""

from __future__ import annotations

import re
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Spelling(StrEnum):
    """The values of `metrics.names`."""

    CLASSIC = "classic"
    REPORTER = "reporter"
    BOTH = "both"


class Kind(StrEnum):
    """Prometheus's types."""

    GAUGE = "gauge"
    COUNTER = "counter"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """A metric and its name in each spelling; counters are named without `_total`.

    An empty name means that the metric does not exist in that spelling.
    """

    classic: str
    reporter: str
    kind: Kind
    text: str

    def names(self, spelling: Spelling) -> tuple[str, ...]:
        """Return the names under which the family is shown."""
        shown = {
            Spelling.CLASSIC: (self.classic,),
            Spelling.REPORTER: (self.reporter,),
            Spelling.BOTH: dict.fromkeys((self.classic, self.reporter)),
        }
        return tuple(filter(None, shown[spelling]))


class Series(NamedTuple):
    """Values of a family; a label text is `{a="b"}` or empty, and may start with a suffix."""

    family: Family
    labels: Sequence[str]
    values: Sequence[Any]


_NOT_A_NAME = re.compile(r"[^a-z0-9_]+")
_PER_SECOND = re.compile("PerSec$")
_PERCENT = re.compile("Percent$")


def gauge(group: str, kind: str, name: str, text: str) -> Family:
    """Name a gauge: `kafka_server_replicamanager_leadercount`; percentages differ by spelling."""
    reporter = _joined(group, kind, name)
    classic = _joined(group, kind, _PERCENT.sub("", name))
    if classic != reporter:
        classic += "_percent"
    return Family(classic, reporter, Kind.GAUGE, text)


def meter(group: str, kind: str, name: str, text: str) -> Family:
    """Name the counter of a meter: `…_bytesin_total`, or `…_bytesinpersec_total`."""
    return Family(
        _joined(group, kind, _PER_SECOND.sub("", name)),
        _joined(group, kind, name),
        Kind.COUNTER,
        text,
    )


def rate(group: str, kind: str, name: str, window: str, text: str) -> Family:
    """Name a meter's average: `…_bytesinpersec_oneminuterate`, in either spelling."""
    full = f"{_joined(group, kind, name)}_{window}"
    return Family(full, full, Kind.GAUGE, text)


def summary(group: str, kind: str, name: str, text: str) -> Family:
    """Name a Kafka histogram: percentiles by the label quantile, and `_count`."""
    full = _joined(group, kind, name)
    return Family(full, full, Kind.SUMMARY, text)


def client_gauge(kind: str, name: str, text: str) -> Family:
    """Name an attribute of `kafka.server:type=raft-metrics`: classic drops the hyphen."""
    return Family(
        f"kafka_server_{_plain(kind, '')}_{_plain(name, '_')}",
        f"kafka_server_{_plain(kind, '_')}_{_plain(name, '_')}",
        Kind.GAUGE,
        text,
    )


def own(name: str, text: str, kind: Kind = Kind.GAUGE) -> Family:
    """Name a metric with only one spelling: an exporter's, or Ottla's own."""
    return Family(name, name, kind, text)


def _joined(group: str, kind: str, name: str) -> str:
    return f"{_plain(group, '_')}_{_plain(kind, '_')}_{_plain(name, '_')}"


def _plain(text: str, separator: str) -> str:
    return _NOT_A_NAME.sub(separator, text.lower())


def label_text(**labels: object) -> str:
    """Format labels in the Prometheus text format."""
    inner = ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def escaped(value: str) -> str:
    """Escape a label's value."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def quantile_labels(quantiles: Sequence[float], **labels: object) -> tuple[str, ...]:
    """Return the label texts of a summary: one for each quantile, then sum and count."""
    plain = label_text(**labels)
    return (
        *(label_text(**labels, quantile=quantile) for quantile in quantiles),
        f"_sum{plain}",
        f"_count{plain}",
    )


def bucket_labels(bounds: Sequence[float]) -> tuple[str, ...]:
    """Return the label texts of a histogram: one for each bound, +Inf, then sum and count."""
    return (
        *(f"_bucket{label_text(le=float(bound))}" for bound in bounds),
        f"_bucket{label_text(le='+Inf')}",
        "_sum",
        "_count",
    )


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
                yield head + self._lines(sample_name(family, name), labels, values)
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


def sample_name(family: Family, name: str) -> str:
    """Return the name of a family's samples in the text format."""
    return f"{name}_total" if family.kind is Kind.COUNTER else name


def _head(family: Family, name: str, *, openmetrics: bool) -> bytes:
    shown = name if openmetrics else sample_name(family, name)
    text = family.text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {shown} {text}\n# TYPE {shown} {family.kind.value}\n".encode()
