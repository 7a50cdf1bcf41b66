"""The real broker runs under the tests' hands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conformance.kafka import RealKafka

pytestmark = pytest.mark.conformance


def test_tools_reach_the_running_node(real_kafka: RealKafka) -> None:
    """A topic made with Kafka's own tool is in the list that the tool prints."""
    command = "org.apache.kafka.tools.TopicCommand"
    real_kafka.tool(command, "--create", "--topic", "probe", "--partitions", "2")
    assert "probe" in real_kafka.tool(command, "--list").split()
