"""Metrics of a worker as MBeans, and their names for Prometheus.

The classic spelling is that of the example rules for the JMX exporter, which drop `connect-` and
`-metrics` of a type: kafka_connect_source_task_source_record_poll_total. The reporter's keeps
them: kafka_connect_source_task_metrics_source_record_poll_total.

Kafka: org.apache.kafka.common.metrics.JmxReporter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metrics.families import Family, Kind, Series, Spelling, label_text, sample_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DOMAIN: Final = "kafka.connect"
"""Of the worker's own beans; those of tasks have others."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,127}", re.ASCII)
"""Prometheus refuses a page with a label `0a` or `__name__`."""
_TEXT_MAX: Final = 1024
"""Characters of a tag's or an attribute's text; names of topics and groups have at most 249."""
_FIELDS_MAX: Final = 100
"""Tags or attributes of a bean; the largest of Kafka's has 22 attributes."""
_NOT_A_NAME = re.compile(r"[^a-z0-9_]+")


class MBean(NamedTuple):
    """The attributes of one thing; a text is shown as a label, with the value 1."""

    domain: str
    """As kafka.connect."""
    type: str
    tags: Mapping[str, str]
    attributes: Mapping[str, float | str]


def valid_bean(fields: object) -> MBean | None:
    """Return a bean of plain names, texts and numbers; None for anything else."""
    match fields:
        case [str(domain), str(type_), Mapping() as tags, Mapping() as attributes]:
            named = (domain, type_, *tags, *attributes)
            if (
                max(len(tags), len(attributes)) <= _FIELDS_MAX
                and all(isinstance(it, str) and _NAME.fullmatch(it) for it in named)
                and all(_is_text(it) for it in tags.values())
                and all(_is_text(it) or _is_number(it) for it in attributes.values())
            ):
                return MBean(domain, type_, dict(tags), dict(attributes))
    return None


def _is_text(value: object) -> bool:
    """Whether a value can be shown: JSON may have half of a character, which UTF-8 cannot say."""
    return (
        isinstance(value, str)
        and len(value) <= _TEXT_MAX
        and (value.isascii() or not any("\ud800" <= it <= "\udfff" for it in value))
    )


def _is_number(value: object) -> bool:
    """Whether a value is of a float's range."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)


def series_of(beans: Iterable[MBean]) -> Iterator[Series]:
    """Return the series of all beans, one for each family.

    Tasks invent beans: no sample is there twice, the first counts, and the worker's come first.
    """
    gathered: dict[Family, dict[frozenset[tuple[str, str]], tuple[str, float]]] = {}
    names: set[str] = set()
    hidden: set[Family] = set()
    for bean in sorted(beans, key=lambda it: it.domain != DOMAIN):
        labels = {_plain(name): value for name, value in bean.tags.items()}
        common, common_text = frozenset(labels.items()), label_text(**labels)
        for name, value in bean.attributes.items():
            is_text = isinstance(value, str)
            family = family_of(bean.domain, bean.type, name, is_text=is_text)
            samples = gathered.get(family)
            if samples is None:
                samples = gathered[family] = {}
                own = {sample_name(family, it) for it in family.names(Spelling.BOTH)}
                if own & names:
                    hidden.add(family)
                names |= own
            if isinstance(value, str):
                all_labels = {**labels, _plain(name): value}
                key, text = frozenset(all_labels.items()), label_text(**all_labels)
                samples.setdefault(key, (text, 1))
            else:
                samples.setdefault(common, (common_text, +value))  # of True a number
    for family, samples in gathered.items():
        if family not in hidden:
            texts, values = zip(*samples.values(), strict=True)
            yield Series(family, texts, values)


@lru_cache(4096)  # bounded, as a connector's process may invent names
def family_of(domain: str, type_: str, name: str, *, is_text: bool) -> Family:
    """Name an attribute; one that ends with `-total` is a counter."""
    short = type_.removeprefix("connect-").removesuffix("-metrics")
    attribute = _plain(name)
    classic = f"{_plain(domain)}_{_plain(short)}_{attribute}"
    reporter = f"{_plain(domain)}_{_plain(type_)}_{attribute}"
    kind = Kind.GAUGE
    if is_text:
        reporter += "_info"
    elif name.endswith("-total"):
        kind = Kind.COUNTER
        classic, reporter = classic.removesuffix("_total"), reporter.removesuffix("_total")
    return Family(classic, reporter, kind, f"{name} of {domain}:type={type_}.")


def _plain(text: str) -> str:
    return _NOT_A_NAME.sub("_", text.lower())
