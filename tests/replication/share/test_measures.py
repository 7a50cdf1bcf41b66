"""The figures of a share partition's fetches, as Kafka counts them."""

from __future__ import annotations

from ottla.replication.share.partition import ShareMeasures


def test_the_ratio_compares_a_fetch_with_the_time_since_the_one_before() -> None:
    """Less than a millisecond counts as one; a fetch that overlaps with another has no ratio."""
    measures = ShareMeasures()
    for begin_ms, end_ms in ((10, 10), (14, 14), (20, 24), (22, 30), (30, 35)):
        measures.fetched(begin_ms, end_ms)
    assert list(measures.lock_times_ms.values) == [0, 0, 4, 8, 5]
    assert list(measures.lock_ratios.values) == [100, 25, 40, 100]
