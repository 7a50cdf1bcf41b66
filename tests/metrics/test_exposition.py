"""The text format, parsed by prometheus-client."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from ottla.metrics.families import (
    Exposition,
    Kind,
    Series,
    Spelling,
    bucket_labels,
    label_text,
    meter,
    own,
    quantile_labels,
)

BYTES_IN = meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", "Bytes received.")
SERIES = [
    Series(own("some_gauge", "A gauge."), ("",), (1.5,)),
    Series(BYTES_IN, ("", '{topic="t"}'), (12, 5)),
    Series(own("some_times", "Times.", Kind.SUMMARY), quantile_labels((0.5,)), (2.0, 8.0, 3)),
    Series(own("some_lag", "Lag.", Kind.HISTOGRAM), bucket_labels((0.1,)), (1, 3, 0.7, 3)),
    Series(own("nothing", "Left out."), (), ()),
]


def test_the_old_text_is_read_back() -> None:
    """All four kinds are what Prometheus's parser of the text format reads."""
    text = b"".join(Exposition().render(SERIES)).decode()
    found = {family.name: family for family in read_text(text)}
    assert list(found) == [
        "some_gauge",
        "kafka_server_brokertopicmetrics_bytesin",
        "some_times",
        "some_lag",
    ]
    assert [found[name].type for name in found] == ["gauge", "counter", "summary", "histogram"]
    counted = found["kafka_server_brokertopicmetrics_bytesin"].samples
    assert [(one.name, one.labels, one.value) for one in counted] == [
        ("kafka_server_brokertopicmetrics_bytesin_total", {}, 12.0),
        ("kafka_server_brokertopicmetrics_bytesin_total", {"topic": "t"}, 5.0),
    ]


def test_the_new_text_is_read_back() -> None:
    """OpenMetrics' strict parser reads both spellings and sees the end."""
    text = b"".join(Exposition(Spelling.BOTH).render(SERIES, openmetrics=True)).decode()
    names = [one.name for one in read_openmetrics(text)]  # type: ignore[no-untyped-call] # theirs
    assert names == [
        "some_gauge",
        "kafka_server_brokertopicmetrics_bytesin",
        "kafka_server_brokertopicmetrics_bytesinpersec",
        "some_times",
        "some_lag",
    ]


def test_numbers_that_are_none_are_written_as_prometheus_reads_them() -> None:
    """NaN and the infinities have their own spelling."""
    labels = tuple(label_text(n=number) for number in range(3))
    values = (math.nan, math.inf, -math.inf)
    text = b"".join(Exposition().render([Series(own("x", ""), labels, values)])).decode()
    read = [sample.value for family in read_text(text) for sample in family.samples]
    assert math.isnan(read[0])
    assert read[1:] == [math.inf, -math.inf]


@given(st.lists(st.binary(min_size=80, max_size=80), min_size=1, max_size=5))
def test_what_is_kept_never_shows_old_values(rounds: list[bytes]) -> None:
    """A writer that keeps templates and texts writes what a new one writes."""
    labels = tuple(label_text(partition=number, odd="50%s") for number in range(80))
    kept = Exposition()
    for number, drawn in enumerate(rounds):
        values = [one % 4 for one in drawn]  # as bytes, which are drawn at once
        shown = labels if number % 3 else (*labels[1:], '{other="1"}')
        series = [Series(own("some_gauge", "A gauge."), shown, values)]
        assert list(kept.render(series)) == list(Exposition().render(series))
