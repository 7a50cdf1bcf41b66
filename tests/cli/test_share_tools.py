"""The tools of share groups on a node; texts of `share-groups` are compared with Kafka's, too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, ConfigResource, NewTopic, Producer, ResourceType
from ottla.testing import Cluster
from tests.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "shared"
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
}


@pytest.fixture(name="bootstrap", scope="module")
def _bootstrap() -> Iterator[str]:
    """Run a node with a topic of three records."""
    with Cluster(config=SETTINGS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
            for name in ("console", "perf"):
                group = ConfigResource(ResourceType.GROUP, name)
                admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for value in (b"a", b"b", b"c"):
                producer.send(TOPIC, value)
        yield cluster.bootstrap


def test_a_console_consumer_and_its_group(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Released records come again; the group is listed, described, reset and deleted."""
    server = ("--bootstrap-server", bootstrap)
    consume = ("console-share-consumer", *server, "--topic", TOPIC, "--group", "console")
    shown = ("--formatter-property", "print.delivery=true", "--max-messages", "3")
    released = run(capsys, *consume, *shown, "--release")
    assert released == (
        0,
        "Delivery:1\ta\nDelivery:1\tb\nDelivery:1\tc\n",
        "Processed a total of 3 messages\n",
    )
    status, out, _ = run(capsys, *consume, *shown)
    assert (status, out) == (0, "Delivery:2\ta\nDelivery:2\tb\nDelivery:2\tc\n")
    groups = ("share-groups", *server)
    assert "console" in run(capsys, *groups, "--list")[1].splitlines()
    listed = run(capsys, "groups", *server, "--list", "--share")[1]
    assert ["console", "Share", "share"] in [line.split() for line in listed.splitlines()]
    one = ("--group", "console")
    assert (
        "console         shared          0          0             0"
        in (run(capsys, *groups, "--describe", *one)[1])
    )
    members = run(capsys, *groups, "--describe", *one, "--members")
    assert members[2] == "\nShare group 'console' has no active members.\n"
    assert "Empty" in run(capsys, *groups, "--describe", *one, "--state", "--verbose")[1]
    reset = ("--reset-offsets", *one, "--topic", TOPIC, "--to-earliest")
    assert "shared          0          0" in run(capsys, *groups, *reset, "--execute")[1]
    assert "0             3" in run(capsys, *groups, "--describe", *one)[1]
    deleted = run(capsys, *groups, "--delete-offsets", *one, "--topic", TOPIC)[1]
    assert deleted == "\nTOPIC           STATUS\nshared          Successful\n"
    failed = run(capsys, *groups, "--delete", *one, "--group", "none")[1]
    assert "'none' could not be deleted" in failed
    assert "successfully: 'console'" in failed


def test_wrong_calls(capsys: pytest.CaptureFixture[str]) -> None:
    """As Kafka's tools say it."""
    status, _, text = run(capsys, "share-groups", "--bootstrap-server", "h:1", "--delete")
    assert status == 1
    assert "Option [delete] takes the options [group] or [all-groups]" in text
    arguments = ("--bootstrap-server", "h:1", "--topic", "t", "--reject", "--release")
    status, _, text = run(capsys, "console-share-consumer", *arguments)
    assert status == 1
    assert "At most one of --reject and --release may be specified." in text
    perf = ("share-consumer-perf-test", "--bootstrap-server", "h:1", "--topic", "t")
    status, _, text = run(capsys, *perf, "--num-records", "1", "--threads", "0")
    assert (status, text) == (1, "Error: Number of threads must be greater than 0.\n")


def test_a_verifiable_consumer_reports_its_acknowledgements(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events have Kafka's names and fields."""
    arguments = ("--topic", TOPIC, "--group-id", "checks", "--max-messages", "3")
    mode = ("--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest", "--verbose")
    tool = ("verifiable-share-consumer", "--bootstrap-server", bootstrap)
    status, out, _ = run(capsys, *tool, *arguments, *mode)
    assert status == 0
    events = [json.loads(line) for line in out.splitlines()]
    names = [event["name"] for event in events]
    assert names[:2] == ["startup_complete", "offset_reset_strategy_set"]
    assert names[2:5] == ["record_data"] * 3
    assert names[-1] == "shutdown_complete"
    consumed = next(one for one in events if one["name"] == "records_consumed")
    place = {"topic": TOPIC, "partition": 0, "count": 3, "offsets": [0, 1, 2]}
    assert (consumed["count"], consumed["partitions"]) == (3, [place])
    acknowledged = next(one for one in events if one["name"] == "offsets_acknowledged")
    assert (acknowledged["partitions"], acknowledged["success"]) == ([place], True)


def test_an_unknown_strategy_is_an_error_after_the_start(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka's tool logs it, too, and shuts down normally."""
    arguments = ("--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", "never")
    strategy = ("--offset-reset-strategy", "by_duration:PT1H")
    status, out, said = run(capsys, "verifiable-share-consumer", *arguments, *strategy)
    names = [json.loads(line)["name"] for line in out.splitlines()]
    assert (status, names) == (0, ["startup_complete", "shutdown_complete"])
    assert "Unknown share group auto offset reset strategy: by_duration:pt1h" in said


def test_a_perf_test_counts_what_all_members_read(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The columns are Kafka's."""
    arguments = ("--topic", TOPIC, "--group", "perf", "--num-records", "3", "--threads", "2")
    tool = ("share-consumer-perf-test", "--bootstrap-server", bootstrap, *arguments)
    status, out, _ = run(capsys, *tool, "--show-consumer-stats", "--print-metrics")
    lines = out.splitlines()
    assert status == 0
    assert lines[0].startswith("start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, ")
    assert "Share consumer 1 having client id perf-share-consumer-client-1" in lines[1]
    assert lines[3].split(", ")[5] == "3"
    assert "consumer-share-fetch-manager-metrics" in out
