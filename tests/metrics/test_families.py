"""How MBeans are spelt."""

from __future__ import annotations

import pytest

from ottla.metrics import families
from ottla.metrics.families import Family, Spelling

REPLICA_MANAGER = ("kafka.server", "ReplicaManager")


@pytest.mark.parametrize(
    ("family", "classic", "reporter"),
    [
        (
            families.gauge(*REPLICA_MANAGER, "UnderReplicatedPartitions", ""),
            "kafka_server_replicamanager_underreplicatedpartitions",
            "kafka_server_replicamanager_underreplicatedpartitions",
        ),
        (
            families.meter("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", ""),
            "kafka_server_brokertopicmetrics_bytesin",
            "kafka_server_brokertopicmetrics_bytesinpersec",
        ),
        (
            families.gauge("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent", ""),
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_network_socketserver_networkprocessoravgidlepercent",
        ),
        (
            families.client_gauge("raft-metrics", "high-watermark", ""),
            "kafka_server_raftmetrics_high_watermark",
            "kafka_server_raft_metrics_high_watermark",
        ),
    ],
)
def test_a_name_follows_from_the_mbean(family: Family, classic: str, reporter: str) -> None:
    """Each spelling is derived as its exporter derives it, and both shows each name once."""
    assert family.names(Spelling.CLASSIC) == (classic,)
    assert family.names(Spelling.REPORTER) == (reporter,)
    assert family.names(Spelling.BOTH) == tuple(dict.fromkeys((classic, reporter)))


def test_a_spelling_may_lack_a_metric() -> None:
    """An empty name is not shown."""
    family = Family("", "there", families.Kind.GAUGE, "")
    assert family.names(Spelling.CLASSIC) == ()
    assert family.names(Spelling.BOTH) == ("there",)


def test_labels_are_escaped() -> None:
    """Quotes, backslashes and line ends of a group's name do not break the text."""
    assert families.label_text(group='a"b\\c\nd', n=1) == '{group="a\\"b\\\\c\\nd",n="1"}'
    assert families.label_text() == ""
