"""The validation of a connector's configuration, and its form in JSON.

Kafka: org.apache.kafka.connect.runtime.AbstractHerder.validateConnectorConfig, ConfigInfos.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.config.definition import ConfigDefinitions, ConfigValue, Key, Type
from ottla.config.secret import Secret
from ottla.connect.connector import ExactlyOnceSupport
from ottla.connect.errors import BadRequestException, ConnectException, NotFoundException
from ottla.connect.runtime.pipeline import names_of
from ottla.connect.settings import OWN, PREDICATES, SINK, SOURCE, TRANSFORMS, OverridePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.connect.connector import SourceConnector
    from ottla.connect.plugins import Plugin, Plugins

log = logging.getLogger("ottla.connect")
_HIDDEN: Final = "[hidden]"
_ANY_OVERRIDE: Final = OverridePolicy()
_UNKNOWN_SUPPORT: Final = (
    "The connector does not implement the API required for preflight validation of exactly-once "
    "source support. Please consult the documentation for the connector to determine whether it "
    "supports exactly-once semantics, and then consider reconfiguring the connector to use the "
    'value "requested" for this property (which will disable this preflight check and allow the '
    "connector to be created)."
)
_UNSUPPORTED: Final = (
    "The connector does not support exactly-once semantics with the provided configuration."
)
_NO_BOUNDARIES: Final = (
    "The connector does not support connector-defined transaction boundaries with the given "
    "configuration. Please reconfigure it to use a different transaction boundary definition."
)
_REFUSED: Final[dict[str, Any]] = {"value": None, "recommended_values": [], "visible": True}
"""A refused setting of a client, without its value: it may be a secret."""


class GroupRules(NamedTuple):
    """The settings of a group of workers that limit its connectors."""

    group_id: str
    has_exactly_once: bool
    """Whether exactly.once.source.support is enabled."""


def validate(
    plugins: Plugins,
    config: Mapping[str, str],
    policy: OverridePolicy = _ANY_OVERRIDE,
    group: GroupRules | None = None,
) -> dict[str, Any]:
    """Return what is right and wrong with a configuration; BadRequestException without a class.

    Kafka's standalone worker, which has no group, does not check exactly.once.support.
    """
    plugin = find_connector(plugins, config)
    connector = plugin.create()
    own: ConfigDefinitions = connector.definitions
    enriched = ConfigDefinitions((SOURCE if plugin.type == "source" else SINK).keys)
    # only where they are set: else answers are those of Kafka, which has none of them
    enriched.keys.update({key: it for key, it in OWN.keys.items() if key in config})
    problems = _add_steps(enriched, plugins, config)
    values = enriched.validate(config)
    by_name = {it.name: it for it in values}
    for name, text in problems:
        by_name[name].errors.append(text)
    if plugin.type == "sink":
        _check_topics(by_name, config)
    elif group is not None:
        _check_exactly_once(by_name, config, connector, group)
    known = {**own.keys, **enriched.keys}
    values += [it for it in connector.validate(config) if it.name not in by_name]
    infos = [_info(known.get(it.name), it) for it in values]
    infos += [
        {"definition": None, "value": {**_REFUSED, "name": name, "errors": [text]}}
        for name, text in policy.problems(config).items()
    ]
    return {
        "name": config.get("connector.class"),
        "error_count": sum(len(it["value"]["errors"]) for it in infos),
        "groups": list(dict.fromkeys([*enriched.groups, *own.groups])),
        "configs": infos,
    }


def require_valid(infos: Mapping[str, Any]) -> None:
    """Raise BadRequestException with every error."""
    errors = [text for it in infos["configs"] for text in it["value"]["errors"]]
    if errors:
        raise BadRequestException(
            f"Connector configuration is invalid and contains the following {len(errors)} "
            "error(s):\n" + "\n".join(errors) + "\nYou can also find the above list of errors at "
            "the endpoint `/connector-plugins/{connectorType}/config/validate`"
        )


def find_connector(plugins: Plugins, config: Mapping[str, str]) -> Plugin:
    """Return the plug-in that a configuration names; BadRequestException without one."""
    name = config.get("connector.class")
    if name is None:
        names_only = "{" + ", ".join(f"{key}={_shown(key, it)}" for key, it in config.items()) + "}"
        raise BadRequestException(f"Connector config {names_only} contains no connector type")
    try:
        return plugins.find(name, "source", "sink")
    except ConnectException:
        known = ", ".join(
            f"PluginDesc{{class={it.java_class}, version='{it.version}', type={it.type}}}"
            for it in plugins.plugins
            if it.type in {"source", "sink"}
        )
        raise BadRequestException(
            "Failed to find any class that implements Connector and which name matches "
            f"{name}, available connectors are: {known}"
        ) from None


def connector_type(plugins: Plugins, config: Mapping[str, str]) -> str:
    """Return source or sink; "unknown", as Kafka, for a class that this worker does not have."""
    try:
        return find_connector(plugins, config).type
    except Exception as error:  # noqa: BLE001 - of the import of another package
        log.warning("the type of connector %s is unknown: %s", config.get("name"), error)
        return "unknown"


def _shown(name: str, value: str) -> str:
    """Return a value of a setting that nothing defines, without what may be a secret."""
    from ottla.clients.settings import SENSITIVE_WORDS

    return _HIDDEN if any(word in name.lower() for word in SENSITIVE_WORDS) else value


def _add_steps(
    definitions: ConfigDefinitions, plugins: Plugins, config: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Add the settings of transforms and predicates; return the problems of their types."""
    problems = []
    kinds = (
        ("transforms", TRANSFORMS, "transformation"),
        ("predicates", PREDICATES, "predicate"),
    )
    for kind, title, type_ in kinds:
        for name in dict.fromkeys(names_of(config.get(kind))):
            prefix, group = f"{kind}.{name}.", f"{title}: {name}"
            label = "transformation" if kind == "transforms" else "predicate"
            definitions.define(
                f"{prefix}type", Type.CLASS, doc=f"Class for the '{name}' {label}.", group=group
            )
            if kind == "transforms":
                definitions.define(f"{prefix}predicate", Type.STRING, "", group=group)
                definitions.define(f"{prefix}negate", Type.BOOLEAN, False, group=group)
            type_name = config.get(f"{prefix}type")
            if type_name is None:
                continue
            try:
                found = plugins.find(type_name, type_).create()
            except (ConnectException, ImportError, AttributeError) as error:
                problems.append((f"{prefix}type", str(error)))
                continue
            for key in found.definitions.keys.values():
                definitions.define(
                    prefix + key.name,
                    key.type,
                    key.default,
                    key.doc,
                    key.check,
                    importance=key.importance,
                    group=group,
                    width=key.width,
                )
    return problems


def _check_topics(values: Mapping[str, ConfigValue], config: Mapping[str, str]) -> None:
    topics, pattern = names_of(config.get("topics")), config.get("topics.regex", "").strip()
    text = None
    if topics and pattern:
        text = "topics and topics.regex are mutually exclusive options, but both are set."
    elif not topics and not pattern:
        text = "Must configure one of topics or topics.regex"
    if text is not None:
        values["topics"].errors.append(text)
        values["topics.regex"].errors.append(text)
    letters = config.get("errors.deadletterqueue.topic.name", "").strip()
    if letters and letters in topics:
        listed = ", ".join(topics)
        values["topics"].errors.append(
            f"The DLQ topic '{letters}' may not be included in the list of topics "
            f"('topics=[{listed}]') consumed by the connector"
        )


def _check_exactly_once(
    values: Mapping[str, ConfigValue],
    config: Mapping[str, str],
    connector: SourceConnector,
    group: GroupRules,
) -> None:
    """Check what a group and a source can do against what its configuration requires (KIP-618)."""
    support, boundary = values["exactly.once.support"], values["transaction.boundary"]
    if not support.errors and str(support.value).strip().lower() == "required":
        if not group.has_exactly_once:
            support.errors.append("This worker does not have exactly-once source support enabled.")
        _add_error(support, lambda: _support_error(connector.exactly_once_support(config)))
    if not boundary.errors and str(boundary.value).strip().lower() == "connector":
        _add_error(
            boundary,
            lambda: None if connector.can_define_transaction_boundaries(config) else _NO_BOUNDARIES,
        )


def _support_error(support: ExactlyOnceSupport | None) -> str | None:
    if support is None:
        return _UNKNOWN_SUPPORT
    return None if support is ExactlyOnceSupport.SUPPORTED else _UNSUPPORTED


def _add_error(value: ConfigValue, check: Callable[[], str | None]) -> None:
    """Add the error that a check by the connector returns; one that it raises is an error, too."""
    try:
        text = check()
    except Exception as error:
        log.exception("Failed while validating %s", value.name)
        reason = str(error).strip()
        details = f": {reason}" if reason else "; please see the worker logs for more details."
        text = f"An unexpected error occurred during validation{details}"
    if text is not None:
        value.errors.append(text)


def plugin_settings(plugins: Plugins, name: str) -> list[dict[str, Any]]:
    """Return the definitions of a plug-in's settings; NotFoundException for an unknown one."""
    types = ("source", "sink", "converter", "header_converter", "transformation", "predicate")
    try:
        plugin = plugins.find(name, *types)
    except ConnectException:
        raise NotFoundException(f"Unknown plugin {name}.") from None
    common = {"source": SOURCE.keys, "sink": SINK.keys}.get(plugin.type, {})
    return [key_info(it) for it in {**common, **plugin.load().definitions.keys}.values()]


def key_info(key: Key) -> dict[str, Any]:
    """Return the definition of a setting."""
    default = None if key.required or key.default is None else key.text(key.default)
    return {
        "name": key.name,
        "type": key.type.name,
        "required": key.required,
        "default_value": _HIDDEN if key.sensitive and default is not None else default,
        "importance": key.importance.name,
        "documentation": key.doc,
        "group": key.group,
        "order_in_group": key.order,
        "width": key.width.name,
        "display_name": key.display_name,
        "dependents": list(key.dependents),
    }


def _info(key: Key | None, value: ConfigValue) -> dict[str, Any]:
    errors = list(value.errors)
    if key is None:
        errors.append(f"Configuration is not defined: {value.name}")
    return {
        "definition": None if key is None else key_info(key),
        "value": {
            "name": value.name,
            "value": _text(key, value.value),
            "recommended_values": [_text(key, it) for it in value.recommended_values],
            "errors": errors,
            "visible": value.visible,
        },
    }


def _text(key: Key | None, value: Any) -> str | None:
    if isinstance(value, Secret):
        return _HIDDEN
    return str(value) if key is None and value is not None else key.text(value) if key else None
