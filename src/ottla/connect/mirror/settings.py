"""The settings of the three connectors.

Kafka: org.apache.kafka.connect.mirror.{MirrorConnectorConfig, MirrorSourceConfig,
MirrorCheckpointConfig, MirrorHeartbeatConfig, DefaultTopicFilter, DefaultGroupFilter,
DefaultConfigPropertyFilter}.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.blocking import Admin
from ottla.clients.blocking import Consumer, Producer
from ottla.config.checks import NON_EMPTY, entries_of, one_of
from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.definition import HIGH, LOW, REQUIRED, ConfigDefinitions, Importance, Type
from ottla.connect.errors import ConnectException
from ottla.connect.mirror.policy import DefaultReplicationPolicy, IdentityReplicationPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.config.checks import Check

JAVA: Final = "org.apache.kafka.connect.mirror."
TASK_PARTITIONS: Final = "task.assigned.partitions"
TASK_GROUPS: Final = "task.assigned.groups"
TASK_INDEX: Final = "task.index"
Row = tuple[str, Type, Any, Importance, str, "Check | None"]
_TEXT, _FLAG, _LIST, _LONG, _INT = Type.STRING, Type.BOOLEAN, Type.LIST, Type.LONG, Type.INT


class NamePatterns:
    """Lists of regular expressions."""

    def reason(self, _name: str, value: object) -> str | None:
        """Compile the list."""
        try:
            NameFilter(value if isinstance(value, tuple) else (), ())
        except re.error as error:
            return f"Invalid pattern: {error}"
        return None

    def __str__(self) -> str:
        """Describe the values."""
        return "valid patterns"


class NameFilter:
    """The names that one list of patterns takes and another does not."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        """Compile the lists; an empty one fits nothing. re.error for an invalid pattern."""
        self._include, self._exclude = (
            re.compile("|".join(it)) if it else None for it in (tuple(include), tuple(exclude))
        )

    def accepts(self, name: str) -> bool:
        """Whether the whole name fits."""
        if self._include is None or not self._include.fullmatch(name):
            return False
        return self._exclude is None or not self._exclude.fullmatch(name)


_EXCLUDED_CONFIGS: Final = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"log\.message\.timestamp\.before\.max\.ms",
    r"log\.message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
)
_BASE: Final[tuple[Row, ...]] = (
    ("source.cluster.alias", _TEXT, REQUIRED, HIGH, "Alias of source cluster", NON_EMPTY),
    (
        "target.cluster.alias", _TEXT, "target", HIGH,
        "Alias of target cluster. Used in metrics reporting.", None,
    ),
    ("enabled", _FLAG, True, LOW, "Whether to replicate source->target.", None),
    (
        "admin.timeout.ms", _LONG, 60_000, LOW,
        "Timeout for administrative tasks, e.g. detecting new topics.", None,
    ),
    (
        "replication.policy.class", Type.CLASS, f"{JAVA}DefaultReplicationPolicy", LOW,
        "Class which defines the remote topic naming convention.", None,
    ),
    (
        "replication.policy.separator", _TEXT, ".", LOW,
        "Separator used in remote topic naming convention.", None,
    ),
    (
        "replication.policy.internal.topic.separator.enabled", _FLAG, True, LOW,
        (
            "Whether to use replication.policy.separator to control the names of topics used for "
            "checkpoints and offset syncs. By default, custom separators are used in these topic "
            "names; however, if upgrading MirrorMaker 2 from older versions that did not allow for "
            "these topic names to be customized, it may be necessary to set this property to "
            "'false' "
            "in order to continue using the same names for those topics."
        ), None,
    ),
    (
        "forwarding.admin.class", Type.CLASS, "org.apache.kafka.clients.admin.ForwardingAdmin",
        LOW, "Class which extends ForwardingAdmin to define custom cluster resource management.",
        None,
    ),
    ("metric.reporters", _LIST, (), LOW, "A list of classes to use as metrics reporters.", None),
)  # fmt: skip
_READS_TOPICS: Final[tuple[Row, ...]] = (
    (
        "consumer.poll.timeout.ms", _LONG, 1_000, LOW,
        "Timeout when polling source cluster.", None,
    ),
    (
        "topic.filter.class", Type.CLASS, f"{JAVA}DefaultTopicFilter", LOW,
        "TopicFilter to use. Selects topics to replicate.", None,
    ),
    (
        "topics", _LIST, (".*",), HIGH,
        "Topics to replicate. Supports comma-separated topic names and regexes.", NamePatterns(),
    ),
    (
        "topics.exclude", _LIST, (r"mm2.*\.internal", r".*\.replica", r"__.*"), HIGH,
        (
            "Excluded topics. Supports comma-separated topic names and regexes. Excludes take "
            "precedence over includes."
        ), NamePatterns(),
    ),
    (
        "offset-syncs.topic.location", _TEXT, "source", LOW,
        "The location (source/target) of the offset-syncs topic.", one_of("source", "target"),
    ),
    (
        "metric.names.formats", _LIST, ("legacy",), LOW,
        "The formats of the names of metrics.", entries_of("legacy", "new", empty_allowed=False),
    ),
)  # fmt: skip
_SOURCE_ROWS: Final[tuple[Row, ...]] = (
    *_READS_TOPICS,
    (
        "config.properties.exclude", _LIST, _EXCLUDED_CONFIGS, HIGH,
        (
            "Topic config properties that should not be replicated. Supports comma-separated "
            "property "
            "names and regexes."
        ), NamePatterns(),
    ),
    (
        "config.property.filter.class", Type.CLASS, f"{JAVA}DefaultConfigPropertyFilter", LOW,
        "ConfigPropertyFilter to use. Selects topic config properties to replicate.", None,
    ),
    (
        "use.defaults.from", _TEXT, "target", LOW,
        (
            "Which cluster's defaults (source or target) to use for topic configurations "
            "that are not "
            "set explicitly."
        ), one_of("source", "target"),
    ),
    (
        "refresh.topics.enabled", _FLAG, True, LOW,
        "Whether to periodically check for new topics and partitions.", None,
    ),
    (
        "refresh.topics.interval.seconds", _LONG, 600, LOW,
        "Frequency of topic refresh.", None,
    ),
    (
        "sync.topic.configs.enabled", _FLAG, True, LOW,
        (
            "Whether to periodically configure remote topics to match their corresponding upstream "
            "topics."
        ), None,
    ),
    (
        "sync.topic.configs.interval.seconds", _LONG, 600, LOW,
        "Frequency of topic config sync.", None,
    ),
    (
        "sync.topic.acls.enabled", _FLAG, True, LOW,
        (
            "Whether to periodically configure remote topic ACLs to match their "
            "corresponding upstream "
            "topics."
        ), None,
    ),
    (
        "sync.topic.acls.interval.seconds", _LONG, 600, LOW,
        "Frequency of topic ACL sync.", None,
    ),
    (
        "replication.factor", _INT, 2, LOW,
        "Replication factor for newly created remote topics.", None,
    ),
    (
        "offset-syncs.topic.replication.factor", Type.SHORT, 3, LOW,
        "Replication factor for offset-syncs topic.", None,
    ),
    (
        "offset.lag.max", _LONG, 100, LOW,
        "How out-of-sync a remote partition can be before it is resynced.", None,
    ),
    (
        "emit.offset-syncs.enabled", _FLAG, True, LOW,
        (
            "Whether to store the new offset of the replicated records in offset-syncs topic "
            "or not. "
            "MirrorCheckpointConnector will not be able to sync group offsets or emit "
            "checkpoints if "
            "emit.checkpoints.enabled and/or sync.group.offsets.enabled are enabled while "
            "emit.offset-syncs.enabled is disabled."
        ), None,
    ),
    (
        "heartbeats.replication.enabled", _FLAG, True, LOW,
        (
            "Whether to replicate the heartbeats topics even when the topic filter does not "
            "include "
            "them."
        ), None,
    ),
)  # fmt: skip
_CHECKPOINT_ROWS: Final[tuple[Row, ...]] = (
    *_READS_TOPICS,
    (
        "groups", _LIST, (".*",), HIGH,
        "Consumer groups to replicate. Supports comma-separated group IDs and regexes.",
        NamePatterns(),
    ),
    (
        "groups.exclude", _LIST, (r"console-consumer-.*", r"connect-.*", r"__.*"), HIGH,
        (
            "Exclude groups. Supports comma-separated group IDs and regexes. Excludes take "
            "precedence "
            "over includes."
        ), NamePatterns(),
    ),
    (
        "group.filter.class", Type.CLASS, f"{JAVA}DefaultGroupFilter", LOW,
        "GroupFilter to use. Selects consumer groups to replicate.", None,
    ),
    (
        "refresh.groups.enabled", _FLAG, True, LOW,
        "Whether to periodically check for new consumer groups.", None,
    ),
    (
        "refresh.groups.interval.seconds", _LONG, 600, LOW,
        "Frequency of group refresh.", None,
    ),
    (
        "emit.checkpoints.enabled", _FLAG, True, LOW,
        "Whether to replicate consumer offsets to target cluster.", None,
    ),
    (
        "emit.checkpoints.interval.seconds", _LONG, 60, LOW, "Frequency of checkpoints.", None,
    ),
    (
        "sync.group.offsets.enabled", _FLAG, False, LOW,
        (
            "Whether to periodically write the translated offsets to __consumer_offsets topic in "
            "target cluster, as long as no active consumers in that group are connected to "
            "the target "
            "cluster"
        ), None,
    ),
    (
        "sync.group.offsets.interval.seconds", _LONG, 60, LOW,
        "Frequency of consumer group offset sync.", None,
    ),
    (
        "checkpoints.topic.replication.factor", Type.SHORT, 3, LOW,
        "Replication factor for checkpoints topic.", None,
    ),
)  # fmt: skip
_HEARTBEAT_ROWS: Final[tuple[Row, ...]] = (
    (
        "emit.heartbeats.enabled", _FLAG, True, LOW,
        "Whether to emit heartbeats to target cluster.", None,
    ),
    (
        "emit.heartbeats.interval.seconds", _LONG, 1, LOW, "Frequency of heartbeats.", None,
    ),
    (
        "heartbeats.topic.replication.factor", Type.SHORT, 3, LOW,
        "Replication factor for heartbeats topic.", None,
    ),
)  # fmt: skip


def _definitions(*rows: Row) -> ConfigDefinitions:
    definitions = ConfigDefinitions()
    for name, type_, default, importance, doc, check in (*_BASE, *rows):
        definitions.define(name, type_, default, doc, check, importance=importance)
    return definitions


SOURCE: Final = _definitions(*_SOURCE_ROWS)
CHECKPOINT: Final = _definitions(*_CHECKPOINT_ROWS)
HEARTBEAT: Final = _definitions(*_HEARTBEAT_ROWS)
_FIXED: Final = {
    "topic.filter.class": "DefaultTopicFilter",
    "group.filter.class": "DefaultGroupFilter",
    "config.property.filter.class": "DefaultConfigPropertyFilter",
    "forwarding.admin.class": "ForwardingAdmin",
}
"""Classes of Java that cannot be replaced here."""
_CLIENTS: Final[Mapping[str, Any]] = {
    "admin": AdminConfig,
    "consumer": ConsumerConfig,
    "producer": ProducerConfig,
}
_JAVA_ONLY: Final = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


class MirrorSettings:
    """The settings of a connector or a task, parsed, and the clients that they describe."""

    def __init__(self, definitions: ConfigDefinitions, config: Mapping[str, str]) -> None:
        """Parse; ConfigErrors for invalid settings, ConnectException for unknown classes."""
        self.config, self.values = config, definitions.parse(config)
        self.source: str = self.values["source.cluster.alias"]
        self.target: str = self.values["target.cluster.alias"]
        for name, only in _FIXED.items():
            selected = str(self.values.get(name, only))
            if selected.rpartition(".")[2] != only:
                raise ConnectException(f"{name}: {selected} is a class of Java; {only} is there")
        self.policy = self._policy()
        self.timeout_s: float = self.values["admin.timeout.ms"] / 1000

    def _policy(self) -> DefaultReplicationPolicy:
        separator = self.values["replication.policy.separator"]
        internal = self.values["replication.policy.internal.topic.separator.enabled"]
        match str(self.values["replication.policy.class"]).rpartition(".")[2]:
            case "DefaultReplicationPolicy":
                return DefaultReplicationPolicy(separator, internal_separator_enabled=internal)
            case "IdentityReplicationPolicy":
                return IdentityReplicationPolicy(
                    self.source, separator, internal_separator_enabled=internal
                )
            case other:
                raise ConnectException(
                    f"replication.policy.class: {other} is not DefaultReplicationPolicy or "
                    "IdentityReplicationPolicy"
                )

    @property
    def topics(self) -> NameFilter:
        """The filter of topics."""
        return NameFilter(self.values["topics"], self.values["topics.exclude"])

    @property
    def syncs_at_source(self) -> bool:
        """Whether the topic of offset syncs is in the source."""
        return bool(self.values["offset-syncs.topic.location"] == "source")

    @property
    def offset_syncs_topic(self) -> str:
        """The topic of offset syncs."""
        return self.policy.offset_syncs_topic(self.target if self.syncs_at_source else self.source)

    def task_configs(
        self, name: str, entries: Sequence[str], tasks_max: int
    ) -> list[Mapping[str, str]]:
        """Divide entries round robin; `name` is the setting of a task that lists its own."""
        count = min(tasks_max, len(entries))
        return [
            {**self.config, TASK_INDEX: str(index), name: ",".join(entries[index::count])}
            for index in range(count)
        ]

    def client(self, side: str, kind: str, role: str) -> dict[str, Any]:
        """Return the settings of a client of `source` or `target`, by Kafka's prefixes."""
        cut = len(f"{side}.cluster.")
        settings: dict[str, Any] = {
            name[cut:]: value
            for name, value in self.config.items()
            if name.startswith(f"{side}.cluster.")
        }
        for prefix in (f"{kind}.", f"{side}.cluster.{kind}.", f"{side}.{kind}."):
            for name, value in self.config.items():
                if name.startswith(prefix):
                    settings[name.removeprefix(prefix)] = value
        known = _CLIENTS[kind].keys
        settings = {
            name: it for name, it in settings.items() if name in known and name not in _JAVA_ONLY
        }
        settings.setdefault("client.id", f"{self.source}->{self.target}|{role}")
        return settings

    def admin(self, side: str, role: str) -> Admin:
        """Return an admin client of one side."""
        return Admin(config=self.client(side, "admin", role))

    def consumer(self, side: str, role: str) -> Consumer:
        """Return a consumer of one side, which belongs to no group."""
        settings = self.client(side, "consumer", role)
        settings.pop("group.id", None)
        settings["enable.auto.commit"] = "false"
        settings.setdefault("auto.offset.reset", "earliest")
        return Consumer(config=settings)

    def offset_sync_producer(self) -> Producer:
        """Return the producer of offset syncs, which are outside of transactions."""
        side = "source" if self.syncs_at_source else "target"
        return Producer(config=self.client(side, "producer", "offset-syncs"))
