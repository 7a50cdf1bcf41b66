"""`ottla topics` against a scripted cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.commands import topics as module
from ottla.cli.main import main
from ottla.clients.admin.cluster import PartitionReassignment
from ottla.clients.admin.configs import ConfigEntry, ConfigResource, ResourceType
from ottla.clients.admin.topics import (
    CreatedTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.types import Node, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from ottla.clients.admin.topics import NewTopic

ID = Uuid(bytes(range(16)))
LEADER = Node(1, "h", 9092)
PARTITIONS = (
    PartitionDescription(0, LEADER, 0, (1, 2), (1, 2), ()),
    PartitionDescription(1, LEADER, 0, (1, 2), (1,), ()),
    PartitionDescription(2, None, 0, (1, 2), (), ()),
)


class FakeAdmin:
    """A cluster with two topics and an internal one; records requests."""

    def __init__(self) -> None:
        self.requested: list[Any] = []
        self.moves: dict[TopicPartition, PartitionReassignment] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def list_topics(self) -> list[TopicListing]:
        """List the topics."""
        names = ("orders", "payments", "__consumer_offsets")
        return [TopicListing(name, ID, name.startswith("__")) for name in names]

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Describe each with three partitions."""
        return {name: TopicDescription(name, ID, False, PARTITIONS, 0) for name in names}

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the moves under way."""
        return self.moves

    def request(self, _request: Any) -> Any:
        """Refuse newer APIs."""
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return one overridden setting of orders."""
        minimum = ConfigEntry("min.insync.replicas", "2", 5, False, False, (), 3, None)
        own = ConfigEntry("retention.ms", "5", 1, False, False, (), 5, None)
        return {
            ConfigResource(ResourceType.TOPIC, one.name): {"min.insync.replicas": minimum}
            | ({"retention.ms": own} if one.name == "orders" else {})
            for one in resources
        }

    def create_topics(
        self, topics: Iterable[NewTopic], *, retry_on_quota_violation: bool
    ) -> dict[str, Any]:
        """Create topics; orders exists. As in Kafka's tool, quotas are not retried."""
        assert not retry_on_quota_violation
        self.requested += topics
        return {
            one.name: KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.")
            if one.name == "orders"
            else CreatedTopic(one.name, ID, 1, 1)
            for one in self.requested
        }

    def create_partitions(
        self, counts: dict[str, int], *, assignments: Any, retry_on_quota_violation: bool
    ) -> dict[str, None]:
        """Add partitions."""
        assert not retry_on_quota_violation
        self.requested += [counts, assignments]
        return dict.fromkeys(counts)

    def delete_topics(
        self, names: Iterable[str], *, retry_on_quota_violation: bool
    ) -> dict[str, None]:
        """Delete topics."""
        assert not retry_on_quota_violation
        self.requested += names
        return dict.fromkeys(self.requested)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """Replace the admin client by a scripted cluster."""
    fake = FakeAdmin()
    monkeypatch.setattr(module, "open_admin", lambda _server, _config: fake)
    return fake


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the tool; return its status, standard output and standard error."""
    status: Any = 0
    try:
        main(["topics", "--bootstrap-server", "h:1", *arguments])
    except SystemExit as ended:
        status = ended.code or 0
    printed = capsys.readouterr()
    return status, printed.out + printed.err


@pytest.mark.usefixtures("admin")
def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """Names are sorted and may be filtered by pattern and without internal topics."""
    assert run(capsys, "--list") == (0, "__consumer_offsets\norders\npayments\n")
    assert run(capsys, "--list", "--exclude-internal") == (0, "orders\npayments\n")
    assert run(capsys, "--list", "--topic", "ord.*,pay") == (0, "orders\n")


@pytest.mark.usefixtures("admin")
def test_describe(capsys: pytest.CaptureFixture[str]) -> None:
    """A topic's line and those of its partitions have Kafka's form."""
    status, text = run(capsys, "--describe", "--topic", "orders")
    assert status == 0
    lines = text.splitlines()
    assert lines[0] == (
        f"Topic: orders\tTopicId: {ID}\tPartitionCount: 3\tReplicationFactor: 2"
        "\tConfigs: retention.ms=5"
    )
    assert lines[1] == (
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2"
        "\tElr: N/A\tLastKnownElr: N/A"
    )
    assert "Leader: none" in lines[3]


def test_describe_a_reassignment(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """A line shows both sets of replicas; those that are added do not count as missing."""
    admin.moves = {TopicPartition("orders", 1): PartitionReassignment((1, 2), (2,), ())}
    _, text = run(capsys, "--describe", "--topic", "orders")
    assert "\tIsr: 1\tAdding Replicas: 2\tRemoving Replicas: \tElr: N/A" in text
    assert text.count("Adding Replicas") == 1
    _, text = run(capsys, "--describe", "--topic", "orders", "--under-replicated-partitions")
    assert "Partition: 1" not in text


@pytest.mark.parametrize(
    ("flag", "partitions"),
    [
        ("--under-replicated-partitions", [1, 2]),
        ("--unavailable-partitions", [2]),
        ("--under-min-isr-partitions", [1, 2]),
        ("--at-min-isr-partitions", [0]),
        ("--at-min-isr-partitions --unavailable-partitions", [0, 2]),
        ("--under-replicated-partitions --at-min-isr-partitions", [0, 1, 2]),
    ],
)
@pytest.mark.usefixtures("admin")
def test_describe_only_some(
    flag: str, partitions: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A filter omits the topic's line and shows matching partitions; two filters are combined."""
    _, text = run(capsys, "--describe", "--topic", "orders", *flag.split())
    assert [int(line.split("\t")[2].split()[1]) for line in text.splitlines()] == partitions


def test_create(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags describe a new topic; an existing one is reported, or ignored with --if-not-exists."""
    flags = (
        "--partitions",
        "3",
        "--config",
        "retention.ms=5",
        "--config",
        "cleanup.policy=compact",
    )
    assert run(capsys, "--create", "--topic", "new", *flags) == (0, "Created topic new.\n")
    (new,) = admin.requested
    assert (new.partitions, new.replication_factor) == (3, -1)
    assert new.configs == {"retention.ms": "5", "cleanup.policy": "compact"}
    status, text = run(capsys, "--create", "--topic", "orders")
    assert (status, text) == (
        1,
        "Error while executing topic command : Topic 'orders' already exists.\n",
    )
    assert run(capsys, "--create", "--topic", "orders", "--if-not-exists") == (0, "")


def test_an_assignment_names_brokers(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Replicas are assigned explicitly; a duplicate broker in one list is refused."""
    run(capsys, "--create", "--topic", "new", "--replica-assignment", "1:2,2:1")
    assert admin.requested[0].assignments == {0: [1, 2], 1: [2, 1]}
    _, text = run(capsys, "--create", "--topic", "new", "--replica-assignment", "1:1")
    assert "Partition replica lists may not contain duplicate entries: 1" in text


def test_alter_and_delete(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    """Patterns select the topics; success prints nothing."""
    assert run(capsys, "--alter", "--topic", "orders", "--partitions", "5") == (0, "")
    assert admin.requested == [{"orders": 5}, None]
    admin.requested.clear()
    growth = ("--alter", "--topic", "orders", "--partitions", "5")
    assert run(capsys, *growth, "--replica-assignment", "1,1,1,1,2") == (0, "")
    assert admin.requested == [{"orders": 5}, {"orders": [[1], [2]]}]
    admin.requested.clear()
    assert run(capsys, "--delete", "--topic", "orders|payments") == (0, "")
    assert admin.requested == ["orders", "payments"]
    status, text = run(capsys, "--delete", "--topic", "none")
    assert status == 1
    assert text == (
        "Error while executing topic command : Topic 'none' does not exist as expected\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Command must include exactly one action"),
        (("--list", "--create"), "Command must include exactly one action"),
        (("--create",), 'Missing required argument "[topic]"'),
        (("--alter", "--topic", "a"), 'Missing required argument "[partitions]"'),
        (
            ("--list", "--partitions", "2"),
            'Option "[partitions]" can\'t be used with option "[list]"',
        ),
        (
            ("--create", "--topic", "a", "--config", "oops"),
            "Error while executing topic command : requirement failed: Invalid topic config",
        ),
        (("--create", "--topic", "a", "--config", "b=c=d"), "Invalid topic config"),
        (
            ("--create", "--topic", "a", "--partitions", "1", "--replica-assignment", "1"),
            'Option "[replica-assignment]" can\'t be used with option "[partitions]"',
        ),
        (("--describe", "--if-exists"), "--topic or --topic-id is required to describe a topic"),
    ],
)
@pytest.mark.usefixtures("admin")
def test_wrong_calls(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error is refused with Kafka's text."""
    status, text = run(capsys, *arguments)
    assert status == 1
    assert sentence in text
