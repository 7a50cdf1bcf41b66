"""The series of the process, read on the thread that serves them."""

from __future__ import annotations

import threading

from ottla.server.system.process import ProcessMetrics


def test_an_answer_that_is_suspended_holds_no_lock() -> None:
    """While one scrape waits for its reader, another thread's scrape goes through."""
    metrics = ProcessMetrics()
    suspended = metrics.collect()
    first = next(suspended)
    others: list[str] = []
    other = threading.Thread(
        target=lambda: others.extend(one.family.classic for one in metrics.collect()), daemon=True
    )
    other.start()
    other.join(60)
    assert others == [first.family.classic, *(one.family.classic for one in suspended)]
