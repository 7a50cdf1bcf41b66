"""Stores that keep the headers of records: in processors, over restarts, in a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ottla.spark.checkpoint import Checkpoint
from ottla.streams import (
    AggregationWithHeaders,
    Processor,
    Record,
    Serdes,
    Stores,
    StreamsConfig,
    StreamsException,
    Topology,
    ValueTimestampHeaders,
    Window,
    Windowed,
)
from ottla.streams.run.checkpoints import check_topology
from ottla.testing import PipelineDriver

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams.stores.specs import StoreSpec

TEXT = Serdes.string()
HEADERS = (("a", b"1"), ("a", None), ("\u00e9", b""))
ROWS = Stores.timestamped_key_value("rows", TEXT, TEXT, has_headers=True)
SPECS = (
    ROWS,
    Stores.window(
        "windows", TEXT, TEXT, retention=100, size=5, has_timestamps=True, has_headers=True
    ),
    Stores.session("sessions", TEXT, TEXT, retention=100, has_headers=True),
)


class Keeping(Processor):
    """Keeps each record in a store of each kind."""

    def process(self, record: Record) -> None:
        """Put a record, with its headers."""
        row = ValueTimestampHeaders(record.value, record.timestamp, record.headers)
        self.context.get_state_store("rows").put(record.key, row)
        self.context.get_state_store("windows").put(record.key, row, record.timestamp)
        session = Windowed(record.key, Window(record.timestamp, record.timestamp + 1))
        kept = AggregationWithHeaders(record.value, record.headers)
        self.context.get_state_store("sessions").put(session, kept)


def topology(*specs: StoreSpec) -> Topology:
    """Return a topology that keeps its records."""
    made = Topology(StreamsConfig("app", TEXT, TEXT)).add_source("source", "in")
    made.add_processor("keeping", Keeping, "source")
    for spec in specs:
        made.add_state_store(spec, "keeping")
    return made


def test_values_have_the_headers_of_their_records() -> None:
    """Also several of a name, without a value, or none; a value that is None is a deletion."""
    with PipelineDriver(topology(*SPECS)) as driver:
        source = driver.input_topic("in")
        source.pipe("k", "old", 1)
        source.pipe("k", "new", 2, HEADERS)
        source.pipe("gone", "x", 2)
        source.pipe("gone", None, 2)
        driver.restart()
        assert list(driver.store("rows").all()) == [("k", ValueTimestampHeaders("new", 2, HEADERS))]
        assert list(driver.store("windows").fetch("k", 0, 9)) == [
            (1, ValueTimestampHeaders("old", 1)),
            (2, ValueTimestampHeaders("new", 2, HEADERS)),
        ]
        assert driver.store("sessions").fetch_session("k", 2, 3) == ("new", HEADERS)
        assert list(driver.store("windows").fetch("gone", 0, 9)) == []
        assert list(driver.store("sessions").fetch("gone")) == []


def test_a_store_without_them_is_another_one(tmp_path: Path) -> None:
    """Its state has other bytes; windows have headers with timestamps only, as in Kafka."""
    checkpoint = Checkpoint(str(tmp_path))
    check_topology(checkpoint, topology(ROWS))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    check_topology(checkpoint, topology(ROWS))
    with pytest.raises(StreamsException, match=r"\n-Headers: rows"):
        check_topology(checkpoint, topology(replace(ROWS, has_headers=False)))
    with pytest.raises(ValueError, match="window store windows has headers, but no timestamps"):
        Stores.window("windows", TEXT, TEXT, retention=100, size=5, has_headers=True)
