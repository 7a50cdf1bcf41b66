"""Every call of Java's admin client whose API is served here has a method, and a line in docs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla import Admin, AsyncAdmin

if TYPE_CHECKING:
    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance

OTHER_NAMES = {
    "incremental_alter_configs": "alter_configs",
    "list_client_metrics_resources": "list_config_resources",
    "list_consumer_groups": "list_groups",
    "describe_consumer_groups": "describe_groups",
    "describe_classic_groups": "describe_groups",
    "delete_consumer_groups": "delete_groups",
    "list_consumer_group_offsets": "list_group_offsets",
    "alter_consumer_group_offsets": "alter_group_offsets",
    "delete_consumer_group_offsets": "delete_group_offsets",
    "delete_streams_groups": "delete_groups",
    "list_streams_group_offsets": "list_group_offsets",
    "alter_streams_group_offsets": "alter_group_offsets",
    "delete_streams_group_offsets": "delete_group_offsets",
    "remove_members_from_consumer_group": "remove_group_members",
}
"""One method for groups of all types; Kafka 4 has no other way to alter settings."""

LATER = re.compile(
    r"acls|delegation|transaction|fence_producers|share_group|"
    r"alter_partition_reassignments|alter_user_scram|metric_(for|from)_sub"
)
"""APIs that the node does not implement, and the metrics registry for unsupported pushes."""


def snake_case(name: str) -> str:
    """Return a Java method's name as Python spells it."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def test_every_served_call_has_a_method(kafka: Kafka) -> None:
    """By the class file of Kafka's interface; the documentation names each of ours."""
    javap = str(Path(kafka.java).with_name("javap"))
    command = [javap, "-cp", str(kafka.jar("clients")), "org.apache.kafka.clients.admin.Admin"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = set(re.findall(r"public (?:abstract|default) .* (\w+)\(", text))
    assert {"createTopics", "describeProducers", "metrics"} <= theirs
    document = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
    for java_name in sorted(theirs):
        name = snake_case(java_name)
        if LATER.search(name):
            continue
        ours = OTHER_NAMES.get(name, name)
        assert callable(getattr(AsyncAdmin, ours, None)), java_name
        assert callable(getattr(Admin, ours, None)), java_name
        assert java_name in document
        assert f"`{ours}`" in document
