"""A crash at every file operation of a branch leaves the source as it was, and no half branch."""

from __future__ import annotations

from ottla.branches.branch import BranchRequest, DirectoryBranch
from ottla.verification.findings import Severity
from tests.branches.crashes import Below, disk_at, sweep
from tests.storage.logs import NOW_MS
from tests.verification.damages import find, sample, serve

FILES = sample()
REQUEST = BranchRequest("source", "fork")


def test_a_crash_at_every_operation_of_a_branch() -> None:
    """The next attempt succeeds."""

    def work(disk: object) -> None:
        DirectoryBranch(disk, REQUEST, now_ms=NOW_MS).run()  # type: ignore[arg-type]

    whole = disk_at(FILES, "source")
    work(whole)
    expected = serve(Below(whole, "fork"))
    rolled = Below(whole, "source")
    assert all(finding.severity is Severity.NOTICE for finding in find(rolled))

    def check(disk: object) -> None:
        for path, data in FILES.items():
            assert disk.content(f"source/{path}") == data  # type: ignore[attr-defined]
        if not disk.exists("fork"):  # type: ignore[attr-defined]
            work(disk)
        forked = Below(disk, "fork")  # type: ignore[arg-type]
        assert find(forked) == []
        assert serve(forked) == expected

    assert sweep(lambda seed: disk_at(FILES, "source", seed), work, check) > 100
