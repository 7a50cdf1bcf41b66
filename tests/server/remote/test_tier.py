"""A node with a tier: segments are copied, leave the disk, and come back to readers."""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ottla
from ottla.testing import Cluster
from tests.waits import WAIT_S, read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ottla.server.node.node import Node

RECORDS = 5000
"""Of 1,000 bytes: some segments of the smallest size."""
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
}


def settings_of(tier: Path) -> dict[str, object]:
    """Return a node's settings with a directory as its tier."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "directory",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rsm.config.dir": str(tier),
        "remote.log.manager.task.interval.ms": "100",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "200",
    }


def starts(node: Node) -> tuple[int, int, int]:
    """Return log start, local start and highest remote offset of the topic's partition."""
    log = node.broker.replicas.get("t", 0).log
    return log.log_start_offset, log.local_log_start_offset, log.highest_remote_offset


def until(cluster: Cluster, is_reached: Callable[[int, int, int], bool]) -> tuple[int, int, int]:
    """Wait for the partition's offsets and return them."""
    end = time.monotonic() + WAIT_S
    while not is_reached(*(found := cluster.run(starts))):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def until_copied(cluster: Cluster) -> tuple[int, int, int]:
    """Wait until the active segment is the only one on the disk; return the offsets."""
    return until(cluster, lambda _, local, high: local == high + 1 == cluster.run(active_base))


def active_base(node: Node) -> int:
    """Return where the active segment of the topic's partition begins."""
    return node.broker.replicas.get("t", 0).log.segments.active.base_offset


def fill(cluster: Cluster) -> None:
    """Make the topic and write all records."""
    with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic("t", 1, 1, configs=TIERED)])
    with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send("t", f"{number:06d}".encode() + b"x" * 994, partition=0)


def read_all(cluster: Cluster) -> list[bytes]:
    """Read the partition from its start, as far as records of `fill` go."""
    with ottla.Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as one:
        one.assign([ottla.TopicPartition("t", 0)])
        one.seek_to_beginning(ottla.TopicPartition("t", 0))
        return [record.value or b"" for record in read_records(one, RECORDS)]


def copied(tier: Path) -> list[Path]:
    """Return the segments in the tier."""
    return sorted(tier.glob("kafka-tiered-storage/*/*.log"))


def test_sealed_segments_are_copied_leave_the_disk_and_are_read(tmp_path: Path) -> None:
    """All but the active one; after a restart the node knows its tier and both starts."""
    tier, data = tmp_path / "tier", tmp_path / "data"
    with Cluster(config=settings_of(tier), data_dir=str(data)) as cluster:
        fill(cluster)
        start, local_start, highest = until_copied(cluster)
        assert start == 0
        names = [path.name for path in copied(tier)]
        assert names[0].startswith("0" * 20)
        assert len(names) >= 4
        expected = [f"{number:06d}".encode() + b"x" * 994 for number in range(RECORDS)]
        assert read_all(cluster) == expected
        cluster.restart()
        assert until(cluster, lambda _, __, high: high == highest) == (0, local_start, highest)
        assert [path.name for path in copied(tier)] == names
        assert read_all(cluster) == expected


def test_lost_leader_epochs_come_back_from_the_tier(tmp_path: Path) -> None:
    """No segment is deleted, and all records are read: the log's start is where it was."""
    tier, data = tmp_path / "tier", tmp_path / "data"
    with Cluster(config=settings_of(tier), data_dir=str(data)) as cluster:
        fill(cluster)
        until_copied(cluster)
        cluster.restart()
        with ottla.Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for _ in range(RECORDS):
                producer.send("t", b"y" * 1000, partition=0)
        until_copied(cluster)
        epochs, names = cluster.run(epochs_of), copied(tier)
        assert len(epochs) == 2
    (checkpoint,) = data.rglob("t-0/leader-epoch-checkpoint")
    checkpoint.unlink()
    with Cluster(config=settings_of(tier), data_dir=str(data)) as cluster:
        until(cluster, lambda _, __, high: high >= 0)
        time.sleep(1)
        assert cluster.run(starts)[0] == 0
        assert cluster.run(epochs_of)[:2] == epochs
        assert copied(tier) == names
        assert read_all(cluster)[0].startswith(b"000000")


def epochs_of(node: Node) -> list[tuple[int, int]]:
    """Return the leader epochs of the topic's partition."""
    return list(node.broker.replicas.get("t", 0).log.leader_epochs.entries)


def test_a_deleted_topic_leaves_no_segment(tmp_path: Path) -> None:
    """Its leader deletes all of them."""
    with Cluster(config=settings_of(tmp_path)) as cluster:
        fill(cluster)
        until_copied(cluster)
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.delete_topics(["t"])
        end = time.monotonic() + WAIT_S
        while copied(tmp_path):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_retention_counts_both_tiers(tmp_path: Path) -> None:
    """retention.bytes moves the log's start, and the oldest remote segments go."""
    with Cluster(config=settings_of(tmp_path)) as cluster:
        fill(cluster)
        until_copied(cluster)
        count = len(copied(tmp_path))
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            topic = ottla.ConfigResource(ottla.ResourceType.TOPIC, "t")
            admin.alter_configs({topic: {"retention.bytes": "3000000"}})
        until(cluster, lambda start, *_: start > 0)
        end = time.monotonic() + WAIT_S
        while int(copied(tmp_path)[0].name[:20]) != cluster.run(starts)[0]:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert len(copied(tmp_path)) < count


def test_a_store_that_is_away_does_not_stop_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says so; all stays on the disk, and is copied when the store is back."""
    tier, settings = tmp_path / "tier", settings_of(tmp_path / "tier")
    tier.write_text("no directory")
    settings["remote.log.manager.task.retry.backoff.max.ms"] = "100"
    settings["remote.log.manager.task.retry.backoff.ms"] = "10"
    with Cluster(config=settings, data_dir=str(tmp_path / "data")) as cluster:
        fill(cluster)
        assert cluster.run(starts) == (0, 0, -1)
        time.sleep(1)
        away = [one.message for one in caplog.records if one.name == "ottla.remote"]
        assert len([text for text in away if "does not answer" in text]) == 1
        assert len(away) == 1
        assert len(read_all(cluster)) == RECORDS
        tier.unlink()
        until_copied(cluster)
        assert len(read_all(cluster)) == RECORDS


def test_wrong_settings_of_a_store_refuse_the_start(tmp_path: Path) -> None:
    """Also the directory of another cluster."""
    (tmp_path / "ottla-cluster-id").write_text("other")
    with (
        pytest.raises(ottla.ConfigError, match="this is the remote storage of cluster other"),
        Cluster(config=settings_of(tmp_path)),
    ):
        pass


class DefectivePlugin:
    """A storage manager that cannot be configured."""

    def configure(self, settings: Mapping[str, str]) -> None:
        raise KeyError("bucket")

    def close(self) -> None:
        pass

    copy_segment = read_segment = read_index = delete_segment = close


def test_a_defect_of_a_plugin_refuses_the_start(tmp_path: Path) -> None:
    """It is no store that is away: another try would fail as well."""
    settings = settings_of(tmp_path)
    settings["remote.log.storage.manager.class.name"] = f"{__name__}.DefectivePlugin"
    with (
        pytest.raises(ottla.ConfigError, match=r"cannot be configured: KeyError\('bucket'\)"),
        Cluster(config=settings),
    ):
        pass


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """Return the texts of one event of remote storage."""
    return [record.message for record in caplog.records if getattr(record, "event", "") == event]


def test_a_store_that_goes_away_while_running_is_named_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Copies are tried in each interval meanwhile; one line says that they work again."""
    caplog.set_level("INFO", "ottla.remote")
    tier = tmp_path / "tier"
    root = tier / "kafka-tiered-storage"
    with Cluster(config=settings_of(tier), data_dir=str(tmp_path / "data")) as cluster:
        assert root.is_dir()
        root.rmdir()
        root.write_text("no directory")
        fill(cluster)
        end = time.monotonic() + WAIT_S
        while cluster.run(failed_copies) < 3:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert len(lines(caplog, "remote.copy_failed")) == 1
        assert not lines(caplog, "remote.delete_failed")
        root.unlink()
        root.mkdir()
        until_copied(cluster)
        assert len(lines(caplog, "remote.returned")) == 1
        assert len(read_all(cluster)) == RECORDS


def failed_copies(node: Node) -> int:
    """Return how many copies failed."""
    assert node.remote_logs is not None
    return node.remote_logs.counts["t"].failed_copy_count


def test_the_copy_quota_holds_copies_back_until_it_is_raised(tmp_path: Path) -> None:
    """As in Kafka a segment's whole size is booked before, so the first one passes."""
    settings = settings_of(tmp_path)
    settings["remote.log.manager.copy.max.bytes.per.second"] = "1000"
    settings["metrics.listener"] = "127.0.0.1:0"
    with Cluster(config=settings) as cluster:
        fill(cluster)
        until(cluster, lambda _start, _local, high: high >= 0)
        first = len(copied(tmp_path))
        time.sleep(2)
        assert len(copied(tmp_path)) == first == 1
        found = figures(cluster)
        assert found[f"{TOPIC_FIGURES}copylagsegments"] == 4  # of six, one active
        assert found[f"{TOPIC_FIGURES}copylagbytes"] > 2_000_000
        assert found["kafka_server_remotelogmanager_remote_copy_throttle_time_max"] > 1000
        assert found["kafka_server_rlmcopy_byte_rate"] > 1000
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            broker = ottla.ConfigResource(ottla.ResourceType.BROKER, "")
            admin.alter_configs(
                {broker: {"remote.log.manager.copy.max.bytes.per.second": "1000000000"}}
            )
        until_copied(cluster)
        assert len(read_all(cluster)) == RECORDS
        end = time.monotonic() + WAIT_S
        stored = sum(path.stat().st_size for path in copied(tmp_path))
        while (found := figures(cluster))[f"{TOPIC_FIGURES}logsizebytes"] != stored:
            assert time.monotonic() < end, found
            time.sleep(0.05)
        assert found[f"{TOPIC_FIGURES}copybytes_total"] == stored
        assert found[f"{TOPIC_FIGURES}logmetadatacount"] == len(copied(tmp_path))
        assert found[f"{TOPIC_FIGURES}copylagsegments"] == 0
        assert found[f"{TOPIC_FIGURES}fetchbytes_total"] > 0
        manager = "kafka_log_remote_remotelogmanager_"
        assert found[f"{manager}remotelogreaderfetchrateandtimems_count"] > 0
        assert found[f"{manager}localretentionsizein_percent"] > 100  # of one byte
        assert found["ottla_remote_storage_away"] == 0


TOPIC_FIGURES = "kafka_server_brokertopicmetrics_remote"


def figures(cluster: Cluster) -> dict[str, float]:
    """Return the topic's metrics by name, else the node's."""
    with urllib.request.urlopen(cluster.metrics_url, timeout=60) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    node = {sample.name: sample.value for sample in samples if not sample.labels}
    return node | {one.name: one.value for one in samples if one.labels.get("topic") == "t"}


def test_thread_counts_change_while_the_node_runs(tmp_path: Path) -> None:
    """Within half and double, as in Kafka."""
    with Cluster(config=settings_of(tmp_path)) as cluster:
        names = {
            "remote.log.manager.copier.thread.pool.size": 20,
            "remote.log.manager.expiration.thread.pool.size": 5,
            "remote.log.manager.follower.thread.pool.size": 1,
            "remote.log.reader.threads": 15,
        }
        with ottla.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            broker = ottla.ConfigResource(ottla.ResourceType.BROKER, "")
            admin.alter_configs({broker: {name: str(count) for name, count in names.items()}})
            end = time.monotonic() + WAIT_S
            while cluster.run(thread_counts) != list(names.values()):
                assert time.monotonic() < end
                time.sleep(0.05)
            (error,) = admin.alter_configs({broker: {"remote.log.reader.threads": "31"}}).values()
            assert "should not be greater than double the current value 15" in str(error)


def thread_counts(node: Node) -> list[int]:
    """Return how many calls of each kind run at a time."""
    assert node.remote_logs is not None
    return [calls.count for calls in node.remote_logs.tier.calls.values()]
