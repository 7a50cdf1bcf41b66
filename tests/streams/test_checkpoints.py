"""What a checkpoint belongs to: a topology, its columns, a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.streams import Consumed, Serdes, StreamsBuilder, StreamsException, expr
from ottla.streams.checkpoints import check_cluster, check_topology

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams import Topology


def topology(*, with_column: bool) -> Topology:
    """Return a filter by a function, or by a column."""
    builder = StreamsBuilder()
    stream = builder.stream("in", consumed=Consumed(value=Serdes.json(schema="n INT")))
    if with_column:
        stream.filter(expr("value.n > 1")).to("out")
    else:
        stream.filter(lambda _, value: value["n"] > 1).to("out")
    return builder.build()


def test_a_checkpoint_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """The line names both."""
    check_cluster(str(tmp_path), "a")
    check_cluster(str(tmp_path), "a")
    with pytest.raises(StreamsException, match="belongs to cluster a, the brokers to b"):
        check_cluster(str(tmp_path), "b")


def test_a_function_does_not_become_a_column(tmp_path: Path) -> None:
    """Columns divide the state otherwise, under the same names."""
    check_topology(str(tmp_path), topology(with_column=False))
    with pytest.raises(StreamsException, match=r"\+Columns: KSTREAM-FILTER-0000000001"):
        check_topology(str(tmp_path), topology(with_column=True))
