"""Settings, quotas and features: described, altered, refused.

Kafka: ConfigHelper, ConfigurationControlManager, ClientQuotaControlManager, FeatureControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.apis.alter_configs import AlterConfigsRequest
from ottla.protocol.apis.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.apis.describe_configs import DescribeConfigsRequest
from ottla.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.apis.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.apis.update_features import UpdateFeaturesRequest
from tests.conformance.differential.case import case

if TYPE_CHECKING:
    from ottla.protocol.schema import Request
    from tests.conformance.differential.case import Case, Fields
    from tests.conformance.differential.side import Side

E_ = ErrorCode
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
BOTH = ("broker", "controller")
LOST = E_.UNKNOWN_TOPIC_OR_PARTITION
Change = tuple[str, int, str | None]

# ---------------------------------------------------------------- describe


def _described(kind: int, name: str, *keys: str, **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.topic("configured", retention_ms="7000", cleanup_policy="compact,delete")
        resource = {
            "resource_type": kind,
            "resource_name": name,
            "configuration_keys": list(keys) or None,
        }
        return {"resources": [resource], **options}

    return fields


def _describe(name: str, fields: Fields, *errors: int, **options: Any) -> Case:
    return case(DescribeConfigsRequest, name, fields, errors=errors, **options)


def _describe_at_controller(name: str, fields: Fields, *errors: int) -> Case:
    return case(DescribeConfigsRequest, name, fields, errors=errors, listener="controller")


ALL = {"include_synonyms": True, "include_documentation": True}
DESCRIBE = [
    _describe("valid, topic", _described(TOPIC, "configured")),
    _describe("topic with all", _described(TOPIC, "configured", **ALL)),
    _describe("two of a topic", _described(TOPIC, "configured", "retention.ms", "cleanup.policy")),
    _describe("unknown key", _described(TOPIC, "configured", "nope")),
    _describe(
        "no key",
        lambda at, v: {
            "resources": [
                {"resource_type": TOPIC, "resource_name": "configured", "configuration_keys": []}
            ]
        },
    ),
    _describe("unknown topic", _described(TOPIC, "absent"), LOST),
    _describe("invalid topic", _described(TOPIC, "a b"), E_.INVALID_TOPIC_EXCEPTION),
    _describe("empty topic", _described(TOPIC, ""), E_.INVALID_TOPIC_EXCEPTION),
    _describe("broker", _described(BROKER, "1")),
    _describe("broker with all", _described(BROKER, "1", **ALL)),
    _describe("some of a broker", _described(BROKER, "1", "log.retention.ms", "node.id", "nope")),
    _describe("default broker", _described(BROKER, "", **ALL)),
    _describe("another broker", _described(BROKER, "7"), E_.INVALID_REQUEST),
    _describe("broker with a name", _described(BROKER, "x"), E_.INVALID_REQUEST),
    _describe("group", _described(GROUP, "grouped", **ALL)),
    _describe("group without name", _described(GROUP, ""), E_.INVALID_REQUEST),
    _describe("client metrics", _described(METRICS, "measured", **ALL)),
    _describe("client metrics without name", _described(METRICS, ""), E_.INVALID_REQUEST),
    _describe("unknown kind", _described(77, "any"), E_.INVALID_REQUEST),
    _describe(
        "unknown kind among known ones",
        lambda at, v: {
            "resources": [
                {"resource_type": kind, "resource_name": "1", "configuration_keys": None}
                for kind in (BROKER, 77, TOPIC)
            ]
        },
        E_.INVALID_REQUEST,
    ),
    _describe("loggers of another broker", _described(LOGGER, "7"), E_.INVALID_REQUEST),
    _describe_at_controller("valid, topic", _described(TOPIC, "configured")),
    _describe_at_controller("unknown topic", _described(TOPIC, "absent"), LOST),
    _describe_at_controller("broker", _described(BROKER, "1")),
    _describe_at_controller("another broker", _described(BROKER, "7"), E_.INVALID_REQUEST),
    _describe("nothing", lambda at, v: {"resources": []}),
]

# ---------------------------------------------------------------- alter


def _altered(kind: int, name: str, *changes: Change, **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        at.topic("altered")
        configs = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        return {
            "resources": [resource] * options.get("times", 1),
            "validate_only": options.get("validate_only", False),
        }

    return fields


def _replaced(kind: int, name: str, *changes: tuple[str, str | None], **options: Any) -> Fields:
    inner = _altered(kind, name, *((key, SET, value) for key, value in changes), **options)

    def fields(at: Side, version: int) -> dict[str, Any]:
        made = inner(at, version)
        for resource in made["resources"]:
            resource["configs"] = [
                {"name": one["name"], "value": one["value"]} for one in resource["configs"]
            ]
        return made

    return fields


def _shown(kind: int, name: str, *keys: str) -> Any:
    """Look at what the settings are afterwards."""

    def after(at: Side, version: int) -> Any:
        requested = _described(kind, name, *keys, include_synonyms=True)(at, 4)
        return at.normalise(at.ask(ApiKey.DESCRIBE_CONFIGS, **requested), 4)

    return after


def _on_both(
    api: type[Request], name: str, fields: Fields, *errors: int, **options: Any
) -> list[Case]:
    """Return the case for both listeners; `controller` are the codes there when they differ."""
    others = options.pop("controller", errors)
    return [
        case(api, name, fields, errors=errors, **options),
        case(api, name, fields, errors=others, listener="controller", **options),
    ]


def _alter(name: str, fields: Fields, *errors: int, **options: Any) -> list[Case]:
    return _on_both(IncrementalAlterConfigsRequest, name, fields, *errors, **options)


def _replace(name: str, fields: Fields, *errors: int, **options: Any) -> list[Case]:
    return _on_both(AlterConfigsRequest, name, fields, *errors, **options)


RETENTION, POLICY = "retention.ms", "cleanup.policy"
ALTER = [
    *_alter(
        "valid",
        _altered(TOPIC, "altered", (RETENTION, SET, "5")),
        after=_shown(TOPIC, "altered", RETENTION),
    ),
    *_alter("append", _altered(TOPIC, "altered", (POLICY, APPEND, "compact"))),
    *_alter("append what is there", _altered(TOPIC, "altered", (POLICY, APPEND, "delete"))),
    *_alter("subtract", _altered(TOPIC, "altered", (POLICY, SUBTRACT, "compact"))),
    *_alter(
        "subtract what is not there", _altered(TOPIC, "altered", (POLICY, SUBTRACT, "compact"))
    ),
    *_alter(
        "delete",
        _altered(TOPIC, "altered", (RETENTION, DELETE, None)),
        after=_shown(TOPIC, "altered"),
    ),
    *_alter("delete with a value", _altered(TOPIC, "altered", (RETENTION, DELETE, "1"))),
    *_alter("validate only", _altered(TOPIC, "altered", (RETENTION, SET, "9"), validate_only=True)),
    *_alter(
        "null",
        _altered(TOPIC, "altered", (RETENTION, SET, None)),
        E_.INVALID_REQUEST,
        controller=[],
    ),
    *_alter(
        "append to a number",
        _altered(TOPIC, "altered", (RETENTION, APPEND, "1")),
        E_.INVALID_CONFIG,
    ),
    *_alter(
        "unknown operation",
        _altered(TOPIC, "altered", (RETENTION, 9, "1")),
        E_.UNKNOWN_SERVER_ERROR,
        controller=[E_.NOT_CONTROLLER],
    ),
    *_alter(
        "the same key twice",
        _altered(TOPIC, "altered", (RETENTION, SET, "1"), (RETENTION, SET, "2")),
        E_.INVALID_REQUEST,
        controller=[E_.NOT_CONTROLLER],
    ),
    *_alter(
        "resource twice",
        _altered(TOPIC, "altered", (RETENTION, SET, "1"), times=2),
        E_.INVALID_REQUEST,
    ),
    *_alter("unknown key", _altered(TOPIC, "altered", ("nope", SET, "1")), E_.INVALID_CONFIG),
    *_alter("wrong value", _altered(TOPIC, "altered", (RETENTION, SET, "z")), E_.INVALID_CONFIG),
    *_alter(
        "out of range", _altered(TOPIC, "altered", ("segment.bytes", SET, "1")), E_.INVALID_CONFIG
    ),
    *_alter("unknown topic", _altered(TOPIC, "absent", (RETENTION, SET, "1")), LOST),
    *_alter(
        "invalid topic", _altered(TOPIC, "a b", (RETENTION, SET, "1")), E_.INVALID_TOPIC_EXCEPTION
    ),
    *_alter("empty topic", _altered(TOPIC, "", (RETENTION, SET, "1")), E_.INVALID_REQUEST),
    *_alter(
        "broker",
        _altered(BROKER, "1", ("log.cleaner.threads", SET, "2")),
        after=_shown(BROKER, "1", "log.cleaner.threads"),
    ),
    *_alter(
        "broker back",
        _altered(BROKER, "1", ("log.cleaner.threads", DELETE, None)),
        after=_shown(BROKER, "1", "log.cleaner.threads"),
    ),
    *_alter(
        "all brokers",
        _altered(BROKER, "", ("message.max.bytes", SET, "2000000")),
        after=_shown(BROKER, "1", "message.max.bytes"),
    ),
    *_alter(
        "all brokers back",
        _altered(BROKER, "", ("message.max.bytes", DELETE, None)),
        after=_shown(BROKER, "1", "message.max.bytes"),
    ),
    *_alter(
        "read-only of a broker",
        _altered(BROKER, "1", ("log.dirs", SET, "x")),
        E_.INVALID_REQUEST,
        controller=[],
    ),
    *_alter(
        "wrong value of a broker",
        _altered(BROKER, "1", ("log.cleaner.threads", SET, "z")),
        E_.INVALID_REQUEST,
        controller=[],
    ),
    *_alter(
        "cleaner threads 0 of a broker",
        _altered(BROKER, "1", ("log.cleaner.threads", SET, "0"), validate_only=True),
        E_.INVALID_REQUEST,
        controller=[],
    ),
    *_alter(
        "wrong value of another broker",
        _altered(BROKER, "7", ("min.insync.replicas", SET, "z")),
        E_.INVALID_REQUEST,
        controller=[E_.INVALID_CONFIG],
    ),
    *_alter(
        "wrong value of a broker with a name",
        _altered(BROKER, "x", ("min.insync.replicas", SET, "z")),
        E_.INVALID_REQUEST,
        controller=[E_.INVALID_CONFIG],
    ),
    *_alter("unknown of a broker", _altered(BROKER, "1", ("nope", SET, "z"))),
    *_alter(
        "another broker",
        _altered(BROKER, "7", ("log.cleaner.threads", SET, "2")),
        E_.INVALID_REQUEST,
        controller=[E_.BROKER_ID_NOT_REGISTERED],
    ),
    *_alter(
        "broker with a name",
        _altered(BROKER, "x", ("log.cleaner.threads", SET, "2")),
        E_.INVALID_REQUEST,
    ),
    *_alter(
        "group",
        _altered(GROUP, "grouped", ("consumer.session.timeout.ms", SET, "50000")),
        after=_shown(GROUP, "grouped"),
    ),
    *_alter(
        "group out of range",
        _altered(GROUP, "grouped", ("consumer.session.timeout.ms", SET, "1")),
        E_.INVALID_CONFIG,
    ),
    *_alter(
        "group without name",
        _altered(GROUP, "", ("consumer.session.timeout.ms", SET, "1")),
        E_.INVALID_REQUEST,
    ),
    *_alter("client metrics", _altered(METRICS, "measured", ("interval.ms", SET, "1000"))),
    *_alter(
        "client metrics out of range",
        _altered(METRICS, "measured", ("interval.ms", SET, "1")),
        E_.INVALID_REQUEST,
    ),
    *_alter(
        "client metrics, interval is no number",
        _altered(METRICS, "measured", ("interval.ms", SET, "x")),
        E_.INVALID_CONFIG,
    ),
    *_alter(
        "client metrics, the same entry twice",
        _altered(METRICS, "measured-too", ("metrics", SET, "a,b,a")),
        after=_shown(METRICS, "measured-too"),
    ),
    *_alter(
        "the same entry twice",
        _altered(TOPIC, "altered", (POLICY, SET, "compact,delete,compact")),
        after=_shown(TOPIC, "altered", POLICY),
    ),
    *_alter(
        "client metrics unknown",
        _altered(METRICS, "measured", ("nope", SET, "1")),
        E_.INVALID_REQUEST,
    ),
    *_alter(
        "unknown kind",
        _altered(77, "any", ("nope", SET, "1")),
        E_.INVALID_REQUEST,
        controller=[E_.UNSUPPORTED_VERSION],
    ),
    *(
        case(
            IncrementalAlterConfigsRequest,
            name,
            _altered(kind, "" if kind == BROKER else "altered", *changes, times=times),
            errors=[E_.INVALID_REQUEST],
        )
        for name, kind, changes, times in (
            ("unknown operation of brokers", BROKER, [("log.cleaner.threads", 9, "1")], 1),
            ("unknown kind, null", 77, [(RETENTION, SET, None)], 1),
            ("unknown kind, unknown operation", 77, [(RETENTION, 9, "1")], 1),
            ("unknown kind, null and the same key twice", 77, [(RETENTION, SET, None)] * 2, 1),
            ("loggers, null", LOGGER, [(RETENTION, SET, None)], 1),
            ("resource twice, null", TOPIC, [(RETENTION, SET, None)], 2),
            ("unknown kind twice, null", 77, [(RETENTION, SET, None)], 2),
        )
    ),
    *_alter("nothing", lambda at, v: {"resources": []}),
    *_replace(
        "valid",
        _replaced(TOPIC, "altered", (RETENTION, "6"), ("segment.ms", "60000")),
        after=_shown(TOPIC, "altered", RETENTION, "segment.ms"),
    ),
    *_replace(
        "to nothing",
        _replaced(TOPIC, "altered"),
        after=_shown(TOPIC, "altered", RETENTION, "segment.ms"),
    ),
    *_replace("validate only", _replaced(TOPIC, "altered", (RETENTION, "9"), validate_only=True)),
    *_replace(
        "null", _replaced(TOPIC, "altered", (RETENTION, None)), E_.INVALID_REQUEST, controller=[]
    ),
    *_replace("unknown key", _replaced(TOPIC, "altered", ("nope", "1")), E_.INVALID_CONFIG),
    *_replace("wrong value", _replaced(TOPIC, "altered", (RETENTION, "z")), E_.INVALID_CONFIG),
    *_replace("unknown topic", _replaced(TOPIC, "absent", (RETENTION, "1")), LOST),
    *(
        case(
            AlterConfigsRequest,
            name,
            _replaced(kind, "1", *changes),
            errors=[E_.INVALID_REQUEST],
        )
        for name, kind, changes in (
            ("unknown kind, null", 77, [(RETENTION, None)]),
            ("unknown kind, the same key twice", 77, [(RETENTION, "1"), (RETENTION, None)]),
            ("loggers, null", LOGGER, [(RETENTION, None)]),
            ("loggers", LOGGER, [("kafka", "INFO")]),
        )
    ),
    case(
        AlterConfigsRequest,
        "twice",
        _replaced(TOPIC, "altered", (RETENTION, "1"), times=2),
        versions=(2, 2),
        silent=True,
    ),
    *_replace(
        "another broker",
        _replaced(BROKER, "7", ("log.cleaner.threads", "2")),
        E_.INVALID_REQUEST,
        controller=[E_.BROKER_ID_NOT_REGISTERED],
    ),
    *_replace(
        "unknown kind",
        _replaced(77, "any", ("nope", "1")),
        E_.INVALID_REQUEST,
        controller=[E_.UNSUPPORTED_VERSION],
    ),
]

# ---------------------------------------------------------------- what has settings


def _listed(*kinds: int) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        return {"resource_types": list(kinds)}

    return fields


LIST = [
    case(ListConfigResourcesRequest, "valid, all", _listed()),
    *(
        case(ListConfigResourcesRequest, f"of kind {kind}", _listed(kind), versions=(1, 99))
        for kind in (TOPIC, BROKER, LOGGER, METRICS, GROUP)
    ),
    case(
        ListConfigResourcesRequest,
        "unknown kind",
        _listed(77),
        errors=[E_.UNSUPPORTED_VERSION],
        versions=(1, 99),
    ),
]

# ---------------------------------------------------------------- quotas


def _entity(**names: str | None) -> list[dict[str, Any]]:
    return [
        {"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()
    ]


def _limited(entity: list[dict[str, Any]], key: str, value: float, **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        entry = {
            "entity": entity,
            "ops": [{"key": key, "value": value, "remove": options.get("remove", False)}],
        }
        return {
            "entries": [entry] * options.get("times", 1),
            "validate_only": options.get("validate_only", False),
        }

    return fields


def _asked(*components: tuple[str, int, str | None], strict: bool = False) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        if version >= 0:
            at.once("quota", lambda: _put_quota(at))
        requested = [
            {"entity_type": kind, "match_type": how, "match": name}
            for kind, how, name in components
        ]
        return {"components": requested, "strict": strict}

    return fields


def _put_quota(at: Side) -> None:
    """Limit some users, and all others so high that no later fetch is throttled."""
    for entity in (_entity(user="ann"), _entity(user="ann", client_id="one"), _entity(user=None)):
        requested = _limited(entity, "consumer_byte_rate", 5e12)(at, 1)
        at.ask(ApiKey.ALTER_CLIENT_QUOTAS, **requested)


def _limit(name: str, fields: Fields, *errors: int) -> list[Case]:
    return [
        case(AlterClientQuotasRequest, name, fields, errors=errors, listener=listener)
        for listener in BOTH
    ]


def _quotas(name: str, fields: Fields, *errors: int) -> Case:
    return case(DescribeClientQuotasRequest, name, fields, errors=errors)


RATE, CONNECTIONS = "producer_byte_rate", "connection_creation_rate"
MAPPED = "::ffff:10.9.9.8"
QUOTAS = [
    *_limit("valid", _limited(_entity(user="bob"), RATE, 1e6)),
    *_limit("remove", _limited(_entity(user="bob"), RATE, 0.0, remove=True)),
    *_limit("validate only", _limited(_entity(user="bob"), RATE, 1e6, validate_only=True)),
    *_limit("twice", _limited(_entity(user="eve"), RATE, 1e6, times=2), E_.INVALID_REQUEST),
    *_limit("unknown key", _limited(_entity(user="bob"), "nope", 1.0), E_.INVALID_REQUEST),
    *_limit("negative", _limited(_entity(user="bob"), RATE, -1.0), E_.INVALID_REQUEST),
    *_limit("a fraction", _limited(_entity(user="bob"), RATE, 1.5), E_.INVALID_REQUEST),
    *_limit("unknown entity", _limited(_entity(planet="mars"), RATE, 1.0), E_.INVALID_REQUEST),
    *_limit("empty name", _limited(_entity(user=""), RATE, 1.0), E_.INVALID_REQUEST),
    *_limit("no entity", _limited([], RATE, 1.0), E_.INVALID_REQUEST),
    *_limit("address", _limited(_entity(ip="10.9.9.9"), "connection_creation_rate", 100.0)),
    *_limit("mapped address", _limited(_entity(ip=MAPPED), CONNECTIONS, 50.0)),
    _quotas("mapped address", _asked(("ip", 0, MAPPED))),
    _quotas("unmapped address", _asked(("ip", 0, "10.9.9.8"))),
    *_limit("bytes of an address", _limited(_entity(ip="10.9.9.9"), RATE, 1.0), E_.INVALID_REQUEST),
    *_limit(
        "no address",
        _limited(_entity(ip="not!"), "connection_creation_rate", 1.0),
        E_.INVALID_REQUEST,
    ),
    _quotas("valid, all", _asked()),
    _quotas("a user", _asked(("user", 0, "ann"))),
    _quotas("a user strictly", _asked(("user", 0, "ann"), strict=True)),
    _quotas("default user", _asked(("user", 1, None))),
    _quotas("any user", _asked(("user", 2, None))),
    _quotas("user and client", _asked(("user", 0, "ann"), ("client-id", 2, None))),
    _quotas("address with user", _asked(("ip", 2, None), ("user", 2, None)), E_.INVALID_REQUEST),
    _quotas("unknown entity", _asked(("planet", 2, None)), E_.UNSUPPORTED_VERSION),
    _quotas("empty entity", _asked(("", 2, None)), E_.INVALID_REQUEST),
    _quotas("twice", _asked(("user", 2, None), ("user", 2, None)), E_.INVALID_REQUEST),
    _quotas("exact without name", _asked(("user", 0, None)), E_.INVALID_REQUEST),
    _quotas("default with name", _asked(("user", 1, "x")), E_.INVALID_REQUEST),
    _quotas("unknown match", _asked(("user", 9, "x")), E_.INVALID_REQUEST),
]

# ---------------------------------------------------------------- features


def _feature(name: str, level: int, kind: int = 1, **options: Any) -> Fields:
    def fields(at: Side, version: int) -> dict[str, Any]:
        update = {
            "feature": name,
            "max_version_level": level,
            "upgrade_type": kind,
            "allow_downgrade": kind > 1,
        }
        return {"feature_updates": [update] * options.get("times", 1), "validate_only": True}

    return fields


def _contradicted(at: Side, version: int) -> dict[str, Any]:
    """Ask for a level that is too high, then for one that is not: the last counts."""
    too_high = _feature("share.version", 9)(at, version)
    right = _feature("share.version", 0, 2)(at, version)
    updates = [*too_high["feature_updates"], *right["feature_updates"]]
    return {"feature_updates": updates, "validate_only": True}


def _update(name: str, fields: Fields, *errors: int, **options: Any) -> list[Case]:
    return [
        case(UpdateFeaturesRequest, name, fields, errors=errors, listener=listener, **options)
        for listener in BOTH
    ]


FEATURES = [
    *_update(
        "valid, to the level it has",
        _feature("metadata.version", 29),
        E_.INVALID_UPDATE_VERSION,
    ),
    *_update(
        "too high",
        _feature("metadata.version", 99),
        E_.INVALID_UPDATE_VERSION,
    ),
    *_update(
        "unknown",
        _feature("nope", 1),
        E_.INVALID_UPDATE_VERSION,
    ),
    *_update(
        "unknown kind",
        _feature("metadata.version", 29, 9),
        E_.INVALID_UPDATE_VERSION,
        versions=(1, 99),
    ),
    *_update(
        "twice",
        _feature("metadata.version", 29, times=2),
        E_.INVALID_UPDATE_VERSION,
    ),
    *_update("twice, the last one right", _contradicted, versions=(1, 99)),
    *_update("none", lambda at, v: {"feature_updates": []}),
]
CASES: list[Case] = [*DESCRIBE, *ALTER, *LIST, *QUOTAS, *FEATURES]
