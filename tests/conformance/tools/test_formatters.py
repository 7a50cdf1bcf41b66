"""`console-consumer` with the formatters of the coordinators' topics, compared with Kafka's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, TopicPartition
from ottla.cli.output.coordinator_records import PACKAGE
from ottla.coordinator.runtime.java_hash import partition_for
from ottla.errors import KafkaError
from tests.conformance.tool_pairs import our_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.tool_pairs import Place, Said, ToolJvm

pytestmark = pytest.mark.conformance

GROUP = "formatted"
OFFSETS_PARTITIONS = 5  # of both nodes


def _records(
    run: Callable[..., Said], place: Place, formatter: str
) -> tuple[list[dict[str, Any]], Any]:
    """Read the partition of the test's group to its end: adjacent JSON objects of that group."""
    partition = partition_for(GROUP, OFFSETS_PARTITIONS)
    there = TopicPartition("__consumer_offsets", partition)
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        last = admin.list_offsets({there: -1})[there]
    assert not isinstance(last, KafkaError)
    words = ["--bootstrap-server", place.bootstrap, "--topic", there.topic]
    words += ["--partition", str(partition), "--offset", "earliest"]
    words += ["--max-messages", str(last.offset), "--formatter", f"{PACKAGE}{formatter}"]
    answer = run("console-consumer", words)
    text, found = "".join(answer.out), []
    while text:
        one, end = json.JSONDecoder().raw_decode(text)
        found.append(one)
        text = text[end:]
    return [one for one in found if one["key"]["data"]["group"] == GROUP], answer.status


@pytest.mark.timeout(120)
def test_group_records(places: list[Place], tool_jvm: ToolJvm) -> None:
    """Both tools print the same records of a group that joined, committed, left and was deleted."""
    for place in places:
        there = ["--bootstrap-server", place.bootstrap]
        tool_jvm.run("topics", [*there, "--create", "--topic", GROUP])
        tool_jvm.run("console-producer", [*there, "--topic", GROUP], "a\nb\n")
        read = ["--topic", GROUP, "--group", GROUP, "--from-beginning", "--max-messages", "2"]
        tool_jvm.run("console-consumer", [*there, *read])
        tool_jvm.run("consumer-groups", [*there, "--delete", "--group", GROUP])
        for formatter in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter"):
            java = _records(tool_jvm.run, place, formatter)
            assert java[0]
            assert java[0][-1]["value"] is None
            assert _records(our_tool, place, formatter) == java
        tool_jvm.run("topics", [*there, "--delete", "--topic", GROUP])
