"""The newest row of each key of a partition, without deleted keys: a compacted topic's table.

Rows are gathered and reduced when they are as many as the newest ones, so that memory follows the
number of keys, and not the length of the log.

Kafka: none; org.apache.kafka.streams' KTable and the log cleaner keep the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_ROWS: Final = 500_000
"""Gathered before the first reduction."""


def newest_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the newest row of each key in the order of offsets; rows without a key are left out."""
    gathered: list[pa.RecordBatch] = []
    rows, limit = 0, MIN_ROWS
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows > limit:
            gathered = _reduced(gathered)
            rows = sum(one.num_rows for one in gathered)
            limit = max(MIN_ROWS, 2 * rows)
    for batch in _reduced(gathered):
        kept = batch.filter(batch["value"].is_valid())
        if kept.num_rows:
            yield kept


def _reduced(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if not batches:
        return []
    keys = pa.chunked_array([batch["key"] for batch in batches])
    table = pa.table({"key": keys, "row": np.arange(len(keys))})
    newest = table.group_by("key").aggregate([("row", "max")])
    is_newest = np.zeros(len(keys), bool)
    is_newest[newest.filter(newest["key"].is_valid())["row_max"].to_numpy()] = True
    found, start = [], 0
    for batch in batches:
        end = start + batch.num_rows
        found.append(batch.filter(pa.array(is_newest[start:end])))
        start = end
    return found
