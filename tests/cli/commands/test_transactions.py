"""`ottla transactions` on a node with open, ended and hanging transactions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ottla.cli.main import main
from ottla.testing.cluster import Cluster
from tests.coordinator.transaction.commands import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """Return the address of a node with the ids `open` and `ended`."""
    with Cluster() as cluster:
        session = Session(cluster.bootstrap)
        for line in (
            "topic t 3",
            "find open",
            "init open",
            "produce open P1 0 0 t-0 a",
            "init ended",
            "produce ended P2 0 0 t-1 b",
            "end ended P2 0 commit",
        ):
            session.run(line)
        session.close()
        yield cluster.bootstrap


@pytest.fixture
def tool(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, list[str], str]]:
    """Return a function that runs the tool: its status, rows of words, and errors."""

    def run(words: str) -> tuple[int, list[str], str]:
        try:
            main(["transactions", "--bootstrap-server", bootstrap, *words.split()])
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        shown = capsys.readouterr()
        rows = [" ".join(line.split()) for line in shown.out.splitlines()]
        return status, rows, shown.err.strip()

    return run


def test_ids_are_listed(tool: Callable[[str], tuple[int, list[str], str]]) -> None:
    """All, those that match, and those that are open for long."""
    title = "TransactionalId Coordinator ProducerId TransactionState"
    assert sorted(tool("list")[1]) == [title, "ended 1 1 CompleteCommit", "open 1 0 Ongoing"]
    matching = tool("list --transactional-id-pattern e.*")
    assert matching == (0, [title, "ended 1 1 CompleteCommit"], "")
    assert tool("list --duration-filter 3600000") == (0, [title], "")
    status, _, error = tool("list --transactional-id-pattern (")
    assert (status, error.split(":")[0]) == (1, "Failed to list transactions")


def test_an_id_is_described(tool: Callable[[str], tuple[int, list[str], str]]) -> None:
    """With the partitions of its open transaction; one that does not exist is an error."""
    status, (_, row), _ = tool("describe --transactional-id open")
    assert status == 0
    assert re.fullmatch(r"1 open 0 0 Ongoing 60000 \d{13} \d+ t-0", row)
    unknown = tool("describe --transactional-id none")
    assert unknown[:2] == (1, [])
    assert unknown[2] == (
        "Failed to describe transaction state of transactional-id `none`: DescribeTransactions "
        "request for transactionalId `none` failed because the ID could not be found. Enable debug "
        "logging for additional detail."
    )


def test_producers_are_described(tool: Callable[[str], tuple[int, list[str], str]]) -> None:
    """One with an open transaction, and one whose transaction has ended."""
    _, (_, opened), _ = tool("describe-producers --topic t --partition 0")
    assert re.fullmatch(r"0 0 -1 0 \d{13} 0", opened)
    _, (_, ended), _ = tool("describe-producers --topic t --partition 1 --broker-id 1")
    assert re.fullmatch(r"1 1 0 -1 \d{13} None", ended)
    status, _, error = tool("describe-producers --topic t --partition 9")
    assert status == 1
    assert error.startswith("Failed to describe producers for partition t-9 on leader: ")


def test_a_hanging_transaction_is_found_and_aborted(
    tool: Callable[[str], tuple[int, list[str], str]], bootstrap: str
) -> None:
    """Its coordinator does not know the partition; one that it knows is no hanging one."""
    session = Session(bootstrap)
    session.run("init hanging")
    session.run("add hanging P1 0 t-2")
    session.run("produce hanging P1 0 0 t-2 a version=11")
    session.run("markers P1 0 abort t-2")
    session.run("end hanging P1 0 abort version=4")
    assert tool("find-hanging --topic t --max-transaction-timeout 0")[1][1:] == []
    session.run("add hanging P1 0 t-2")
    session.run("produce hanging P1 0 1 t-2 b version=11")
    session.close()
    assert tool("abort --topic t --partition 2 --start-offset 99") == (
        1,
        [],
        "Could not find any open transactions starting at offset 99 on partition t-2",
    )
    _, (_, *producers), _ = tool("describe-producers --topic t --partition 2")
    (start,) = [row.split()[-1] for row in producers]
    assert tool(f"abort --topic t --partition 2 --start-offset {start}") == (0, [], "")
    _, (_, *producers), _ = tool("describe-producers --topic t --partition 2")
    assert [row.split()[-1] for row in producers] == ["None"]


def test_an_open_transaction_is_terminated(
    tool: Callable[[str], tuple[int, list[str], str]], bootstrap: str
) -> None:
    """Its producer is fenced."""
    session = Session(bootstrap)
    session.run("init ongoing")
    session.run("produce ongoing P1 0 0 t-1 x")
    assert tool("forceTerminateTransaction --transactionalId ongoing") == (0, [], "")
    assert session.run("end ongoing P1 0 commit") == ["PRODUCER_FENCED"]
    session.close()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("find-hanging", "The `find-hanging` command requires either --topic or --broker-id to"),
        ("find-hanging --partition 1 --broker-id 1", "The --partition argument requires --topic"),
        ("find-hanging --topic none", "Failed to describe 1 topics: "),
        ("abort --topic t --partition 0", "The transaction to abort must be identified either "),
        ("abort --topic t --partition 0 --producer-id 7", "Missing required argument --producer-"),
    ],
)
def test_wrong_calls(
    tool: Callable[[str], tuple[int, list[str], str]], words: str, error: str
) -> None:
    """They fail with Kafka's texts."""
    status, rows, shown = tool(words)
    assert (status, rows) == (1, [])
    assert shown.startswith(error)
