"""The settings of every connector, and those of workers.

Kafka: org.apache.kafka.connect.runtime.{ConnectorConfig, SinkConnectorConfig,
SourceConnectorConfig, WorkerConfig, standalone.StandaloneConfig}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.config.checks import NON_EMPTY, Range, at_least, one_of, one_of_any_case
from ottla.config.definition import (
    HIGH,
    LOW,
    MAX_LONG,
    MEDIUM,
    REQUIRED,
    ConfigDefinitions,
    Importance,
    Type,
    Width,
)
from ottla.connect.errors import ConnectException
from ottla.metrics.families import Spelling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.config.checks import Check

COMMON: Final = "Common"
ERRORS: Final = "Error Handling"
PREDICATES: Final = "Predicates"
TOPIC_CREATION: Final = "Topic Creation"
TRANSFORMS: Final = "Transforms"
EXACTLY_ONCE: Final = "Exactly Once Support"
_SHORT, _MEDIUM, _LONG = Width.SHORT, Width.MEDIUM, Width.LONG


class NoControlCharacters:
    """Texts that are not empty and have no control characters."""

    def reason(self, name: str, value: Any) -> str | None:
        """Return the reason that refuses a value."""
        del name
        if value is None:
            return None
        if not value:
            return "String may not be empty"
        bad = [it for it in value if ord(it) < 0x20 or 0x7F <= ord(it) < 0xA0]
        if not bad:
            return None
        listed = ", ".join(str(ord(it)) for it in dict.fromkeys(bad))
        return (
            f"String may not contain control sequences but had the following ASCII chars: {listed}"
        )

    def __str__(self) -> str:
        """Describe the values."""
        return "non-empty string without ISO control characters"


class _NullableRange(Range):
    """A number that may be missing."""

    def reason(self, name: str, value: object) -> str | None:
        """Compare with the bound."""
        return None if value is None else super().reason(name, value)


class _Setting(NamedTuple):
    """A setting of a connector, but for its group and its position there."""

    name: str
    type: Type
    default: Any
    importance: Importance
    width: Width
    label: str
    doc: str
    check: Check | None = None


class _Form:
    """Adds settings group by group, in their order."""

    def __init__(self) -> None:
        self.definitions = ConfigDefinitions()
        self._group, self._order = COMMON, 0

    def group(self, name: str, start: int | None = None) -> None:
        """Begin a group, whose numbers follow `start` or those of the group before, as Kafka's."""
        self._group = name
        self._order = self._order if start is None else start

    def add(self, setting: _Setting) -> None:
        self._order += 1
        self.definitions.define(
            setting.name,
            setting.type,
            setting.default,
            setting.doc,
            setting.check,
            importance=setting.importance,
            group=self._group,
            order=self._order,
            width=setting.width,
            display_name=setting.label,
        )


_CONVERTER = (
    "Converter class used to convert between Kafka Connect format and the serialized form that is "
    "written to Kafka. This controls the format of the {} in messages written to or read from "
    "Kafka."
)


def _common() -> _Form:
    form, text = _Form(), Type.STRING
    form.add(_Setting(
        "name", text, REQUIRED, HIGH, _MEDIUM, "Connector name",
        "Globally unique name to use for this connector.", NoControlCharacters(),
    ))  # fmt: skip
    form.add(_Setting(
        "connector.class", text, REQUIRED, HIGH, _LONG, "Connector class",
        "Name or alias of the class for this connector.",
    ))  # fmt: skip
    form.add(_Setting(
        "connector.plugin.version", text, None, MEDIUM, _MEDIUM, "Connector version",
        "Version of the connector.",
    ))  # fmt: skip
    form.add(_Setting(
        "tasks.max", Type.INT, 1, HIGH, _SHORT, "Tasks max",
        "Maximum number of tasks to use for this connector.", at_least(1),
    ))  # fmt: skip
    form.add(_Setting(
        "tasks.max.enforce", Type.BOOLEAN, True, LOW, _SHORT, "Enforce tasks max",
        "(Deprecated) Whether to enforce that the tasks.max property is respected by the "
        "connector.",
    ))  # fmt: skip
    for part, what in (("key", "keys"), ("value", "values"), ("header", "header values")):
        form.add(_Setting(
            f"{part}.converter", Type.CLASS, None, LOW, _SHORT,
            f"{part.capitalize()} converter class", _CONVERTER.format(what),
        ))  # fmt: skip
        form.add(_Setting(
            f"{part}.converter.plugin.version", text, None, LOW, _SHORT,
            f"{part.capitalize()} converter version", f"Version of the {part} converter.",
        ))  # fmt: skip
    _add_steps(form)
    _add_errors(form)
    return form


def _add_steps(form: _Form) -> None:
    text = Type.STRING
    form.group(TRANSFORMS)
    form.add(_Setting(
        "transforms", Type.LIST, (), LOW, _LONG, "Transforms",
        "Aliases for the transformations to be applied to records.",
    ))  # fmt: skip
    form.group(PREDICATES)
    form.add(_Setting(
        "predicates", Type.LIST, (), LOW, _LONG, "Predicates",
        "Aliases for the predicates used by transformations.",
    ))  # fmt: skip
    form.group(COMMON)
    form.add(_Setting(
        "config.action.reload", text, "restart", LOW, _MEDIUM, "Reload Action",
        "The action that Connect should take on the connector when changes in external "
        "configuration providers result in a change in the connector's configuration properties.",
        one_of("none", "restart"),
    ))  # fmt: skip


def _add_errors(form: _Form) -> None:
    text = Type.STRING
    form.group(ERRORS, 0)
    form.add(_Setting(
        "errors.retry.timeout", Type.LONG, 0, MEDIUM, _MEDIUM, "Retry Timeout for Errors",
        "The maximum duration in milliseconds that a failed operation will be reattempted. "
        "The default is 0, which means no retries will be attempted. Use -1 for infinite retries.",
    ))  # fmt: skip
    form.add(_Setting(
        "errors.retry.delay.max.ms", Type.LONG, 60_000, MEDIUM, _MEDIUM,
        "Maximum Delay Between Retries for Errors",
        "The maximum duration in milliseconds between consecutive retry attempts. Jitter will be "
        "added to the delay once this limit is reached to prevent thundering herd issues.",
    ))  # fmt: skip
    form.add(_Setting(
        "errors.tolerance", text, "none", MEDIUM, _SHORT, "Error Tolerance",
        "Behavior for tolerating errors during connector operation. 'none' is the default value "
        "and signals that any error will result in an immediate connector task failure; 'all' "
        "changes the behavior to skip over problematic records.", one_of("none", "all"),
    ))  # fmt: skip
    form.add(_Setting(
        "errors.log.enable", Type.BOOLEAN, False, MEDIUM, _SHORT, "Log Errors",
        "If true, write each error and the details of the failed operation and problematic "
        "record to the Connect application log.",
    ))  # fmt: skip
    form.add(_Setting(
        "errors.log.include.messages", Type.BOOLEAN, False, MEDIUM, _SHORT, "Log Error Details",
        "Whether to include in the log the Connect record that resulted in a failure.",
    ))  # fmt: skip


def _sink() -> ConfigDefinitions:
    form, text = _common(), Type.STRING
    form.group(COMMON, 3)
    form.add(_Setting(
        "topics", Type.LIST, (), HIGH, _LONG, "Topics",
        "List of topics to consume, separated by commas",
    ))  # fmt: skip
    form.group(COMMON, 3)  # Kafka numbers both alike
    form.add(_Setting(
        "topics.regex", text, "", HIGH, _LONG, "Topics regex",
        "Regular expression giving topics to consume. Only one of topics or topics.regex should be "
        "specified.",
    ))  # fmt: skip
    form.group(ERRORS, 5)
    form.add(_Setting(
        "errors.deadletterqueue.topic.name", text, "", MEDIUM, _MEDIUM,
        "Dead Letter Queue Topic Name",
        "The name of the topic to be used as the dead letter queue (DLQ) for messages that result "
        "in an error when processed by this sink connector, or its transformations or converters.",
    ))  # fmt: skip
    form.add(_Setting(
        "errors.deadletterqueue.topic.replication.factor", Type.SHORT, 3, MEDIUM, _MEDIUM,
        "Dead Letter Queue Topic Replication Factor",
        "Replication factor used to create the dead letter queue topic when it doesn't already "
        "exist.",
    ))  # fmt: skip
    form.add(_Setting(
        "errors.deadletterqueue.context.headers.enable", Type.BOOLEAN, False, MEDIUM, _MEDIUM,
        "Enable Error Context Headers",
        "If true, add headers containing error context to the messages written to the dead letter "
        "queue.",
    ))  # fmt: skip
    return form.definitions


def _source() -> ConfigDefinitions:
    form, text = _common(), Type.STRING
    form.group(TOPIC_CREATION, 0)
    form.add(_Setting(
        "topic.creation.groups", Type.LIST, (), LOW, _LONG, "Topic Creation Groups",
        "Groups of configurations for topics created by source connectors",
    ))  # fmt: skip
    form.group(EXACTLY_ONCE)
    form.add(_Setting(
        "exactly.once.support", text, "requested", MEDIUM, _SHORT, "Exactly once support",
        'Permitted values are requested, required. If set to "required", forces a preflight check '
        "for the connector to ensure that it can provide exactly-once semantics with the given "
        "configuration. Some connectors may be capable of providing exactly-once semantics but not "
        "signal to Connect that they support this; in that case, documentation for the connector "
        "should be consulted carefully before creating it, and the value for this property should "
        'be set to "requested". Additionally, if the value is set to "required" but the worker '
        "that performs preflight validation does not have exactly-once support enabled for source "
        "connectors, requests to create or validate the connector will fail.",
        one_of_any_case("REQUESTED", "REQUIRED"),
    ))  # fmt: skip
    form.add(_Setting(
        "transaction.boundary", text, "poll", MEDIUM, _SHORT, "Transaction Boundary",
        "Permitted values are: poll, interval, connector. If set to 'poll', a new producer "
        "transaction will be started and committed for every batch of records that each task from "
        "this connector provides to Connect. If set to 'connector', relies on connector-defined "
        "transaction boundaries; note that not all connectors are capable of defining their own "
        "transaction boundaries, and in that case, attempts to instantiate a connector with this "
        "value will fail. Finally, if set to 'interval', commits transactions only after a "
        "user-defined time interval has passed.",
        one_of_any_case("POLL", "INTERVAL", "CONNECTOR"),
    ))  # fmt: skip
    form.add(_Setting(
        "transaction.boundary.interval.ms", Type.LONG, None, LOW, _SHORT,
        "Transaction boundary interval",
        "If 'transaction.boundary' is set to 'interval', determines the interval for producer "
        "transaction commits by connector tasks. If unset, defaults to the value of the "
        "worker-level 'offset.flush.interval.ms' property. It has no effect if a different "
        "transaction.boundary is specified.",
        _NullableRange(0),
    ))  # fmt: skip
    form.group("offsets.topic", 0)
    form.add(_Setting(
        "offsets.storage.topic", text, None, LOW, _LONG, "Offsets topic",
        "The name of a separate offsets topic to use for this connector.", NON_EMPTY,
    ))  # fmt: skip
    return form.definitions


SINK: Final = _sink()
SOURCE: Final = _source()
RUNTIME: Final = "ottla.runtime"
RUNTIMES: Final = ("thread", "process", "spark")
BY_DEFAULT: Final = "default"
PROCESS_MEMORY: Final = "ottla.process.memory.max.mb"
CHECKPOINTS: Final = "ottla.spark.checkpoint.dir"
TRIGGER: Final = "ottla.spark.trigger.ms"
BATCH_RECORDS: Final = "ottla.spark.batch.records"
OWN: Final = (
    ConfigDefinitions()
    .define(
        RUNTIME,
        Type.STRING,
        BY_DEFAULT,
        "Where connectors and tasks run; by default where the worker's file or the class says.",
        one_of(BY_DEFAULT, *RUNTIMES),
        group="Ottla",
        order=1,
        width=_SHORT,
        display_name="Runtime",
    )
    .define(
        PROCESS_MEMORY,
        Type.INT,
        1024,
        "Memory in MB of a connector's process, above which it is killed; 0 for no limit.",
        at_least(0),
        group="Ottla",
        order=2,
        width=_SHORT,
        display_name="Memory of the process",
    )
    .define(
        CHECKPOINTS,
        Type.STRING,
        None,
        "Directory of the checkpoints of queries, a path or a URI that every worker reaches; a "
        "connector's is below it, by its name.",
        group="Ottla",
        order=3,
        width=_LONG,
        display_name="Checkpoints of queries",
    )
    .define(
        TRIGGER,
        Type.INT,
        1000,
        "Milliseconds between the starts of two batches of a query at least.",
        at_least(500),
        group="Ottla",
        order=4,
        width=_SHORT,
        display_name="Interval of batches",
    )
    .define(
        BATCH_RECORDS,
        Type.INT,
        100_000,
        "Records of a batch at most: of each partition of a source, of all partitions of a sink.",
        at_least(1),
        group="Ottla",
        order=5,
        width=_SHORT,
        display_name="Records of a batch",
    )
)
"""The settings of every connector that Kafka does not have; a worker's file has its defaults."""


PYTHON_MODULES: Final = "ottla.python.modules"
METRIC_NAMES: Final = "metrics.names"
OVERRIDE_POLICY: Final = "connector.client.config.override.policy"
OVERRIDE_ALLOWLIST: Final = "connector.client.config.override.allowlist"
OVERRIDES: Final = ("producer.override.", "consumer.override.", "admin.override.")
"""The prefixes of a connector's settings for its clients."""
_POLICIES: Final = {
    name: f"org.apache.kafka.connect.connector.policy.{name}ConnectorClientConfigOverridePolicy"
    for name in ("All", "None", "Principal", "Allowlist")
}
_PRINCIPAL: Final = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
"""The settings of clients that say who they are."""


class OverridePolicy(NamedTuple):
    """The settings of clients that connectors may change (KIP-458)."""

    name: str = "All"
    allowlist: frozenset[str] = frozenset()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> OverridePolicy:
        """Read the parsed settings of a worker."""
        policy = values[OVERRIDE_POLICY]
        name = next(it for it, java in _POLICIES.items() if policy in {it, java})
        return cls(name, frozenset(values[OVERRIDE_ALLOWLIST]))

    def problems(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a connector that the policy refuses, and Kafka's texts."""
        if self.name == "All":
            return {}
        allowed = {"Principal": _PRINCIPAL, "Allowlist": self.allowlist}.get(self.name, frozenset())
        names = [
            (setting, setting.removeprefix(prefix))
            for setting in config
            for prefix in OVERRIDES
            if setting.startswith(prefix)
        ]
        return {
            setting: f"The '{self.name}' policy does not allow '{name}' to be overridden in the "
            "connector configuration."
            for setting, name in names
            if name not in allowed
        }

    def require(self, config: Mapping[str, str]) -> None:
        """Raise ConnectException for a configuration that the policy refuses.

        It may be from before the policy, or another worker's.
        """
        refused = self.problems(config)
        if refused:
            raise ConnectException(f"Client Config Overrides not allowed: {' '.join(refused)}")


_REST_ROWS: Final[list[tuple[str, Type, Any, Importance, str, Check | None]]] = [
    (
        "rest.advertised.listener",
        Type.STRING,
        None,
        LOW,
        "The protocol that others use, HTTP or HTTPS.",
        None,
    ),
    (
        "rest.extension.classes",
        Type.LIST,
        (),
        LOW,
        "BasicAuthSecurityRestExtension, for a login to the REST API.",
        None,
    ),
    (
        "ottla.rest.readonly.users",
        Type.LIST,
        (),
        LOW,
        "Users of that login who may only read.",
        None,
    ),
    (
        "ottla.rest.allow.unauthenticated.remote",
        Type.BOOLEAN,
        False,
        LOW,
        "Let other machines configure connectors by the REST API without a login.",
        None,
    ),
]


def _worker() -> ConfigDefinitions:
    rows: list[tuple[str, Type, Any, Importance, str, Check | None]] = [
        (
            "bootstrap.servers",
            Type.LIST,
            REQUIRED,
            HIGH,
            "The brokers that clients connect to.",
            None,
        ),
        ("key.converter", Type.CLASS, REQUIRED, HIGH, _CONVERTER.format("keys"), None),
        ("value.converter", Type.CLASS, REQUIRED, HIGH, _CONVERTER.format("values"), None),
        (
            "header.converter",
            Type.CLASS,
            "org.apache.kafka.connect.storage.SimpleHeaderConverter",
            LOW,
            _CONVERTER.format("header values"),
            None,
        ),
        ("listeners", Type.LIST, ("http://:8083",), LOW, "Addresses of the REST API.", None),
        ("admin.listeners", Type.LIST, None, LOW, "Addresses of the administrative API.", None),
        ("rest.advertised.host.name", Type.STRING, None, LOW, "The host that others use.", None),
        ("rest.advertised.port", Type.INT, None, LOW, "The port that others use.", None),
        ("config.providers", Type.LIST, (), LOW, "Providers of references in values.", None),
        *_REST_ROWS,
        ("plugin.path", Type.LIST, None, LOW, "Java's plug-ins, which are not read.", None),
        (
            "offset.flush.interval.ms",
            Type.LONG,
            60_000,
            LOW,
            "Interval at which to try committing offsets for tasks.",
            at_least(1),
        ),
        (
            "offset.flush.timeout.ms",
            Type.LONG,
            5_000,
            LOW,
            "Time for records to flush and offsets to be stored.",
            at_least(1),
        ),
        (
            "task.shutdown.graceful.timeout.ms",
            Type.LONG,
            5_000,
            LOW,
            "Time to wait for tasks to shut down gracefully, of all tasks together.",
            at_least(0),
        ),
        (
            OVERRIDE_POLICY,
            Type.STRING,
            "All",
            MEDIUM,
            "The settings of their clients that connectors may change.",
            one_of(*_POLICIES, *_POLICIES.values()),
        ),
        (OVERRIDE_ALLOWLIST, Type.LIST, (), MEDIUM, "Those settings under Allowlist.", None),
        (PYTHON_MODULES, Type.LIST, (), LOW, "Modules that transforms in Python may name.", None),
        (METRIC_NAMES, Type.STRING, "classic", LOW, "Spelling at /metrics.", one_of(*Spelling)),
        ("topic.tracking.enable", Type.BOOLEAN, True, LOW, "Track the topics in use.", None),
        ("topic.tracking.allow.reset", Type.BOOLEAN, True, LOW, "Allow to forget them.", None),
        ("offset.storage.file.filename", Type.STRING, REQUIRED, HIGH, "The offset file.", None),
    ]
    definitions = ConfigDefinitions(OWN.keys)
    for name, type_, default, importance, doc, check in rows:
        definitions.define(name, type_, default, doc, check, importance=importance)
    return definitions


STANDALONE: Final = _worker()
"""The settings of a standalone worker."""
SOURCE_PRODUCER: Final[Mapping[str, str]] = {
    "acks": "all",
    "max.in.flight.requests.per.connection": "1",
    "enable.idempotence": "false",
    "max.block.ms": str(MAX_LONG),
    "delivery.timeout.ms": str((1 << 31) - 1),
}
"""The settings of the producers of tasks, below the worker's and the connector's."""
SINK_CONSUMER: Final[Mapping[str, str]] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
}
