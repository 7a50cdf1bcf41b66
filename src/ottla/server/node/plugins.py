"""Plug-ins that settings name: Python classes by dotted path, Java names where one is known.

Kafka: AbstractConfig.getConfiguredInstance, which loads Java classes from the class path.

A name is taken as the dotted path of a Python class. The name of a Java class works when
something stands for it: what Ottla does by itself (JAVA_BUILT_IN), or a Python class that an
installed package offers under the entry point group `ottla.java_classes`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from ottla.config.problems import ConfigProblem
from ottla.controller.policies import Policies
from ottla.network.token_retrieval import RETRIEVER, VALIDATOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.config.broker import BrokerConfig

CREATE_TOPIC_POLICY: Final = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY: Final = "alter.config.policy.class.name"
METRIC_REPORTERS: Final = "metric.reporters"
JAVA_CLASSES_GROUP: Final = "ottla.java_classes"
JAVA_BUILT_IN: Final[Mapping[str, str]] = {
    "org.apache.kafka.common.metrics.JmxReporter": "the endpoint of metrics.listener",
    "io.strimzi.kafka.metrics.prometheus.ServerKafkaMetricsReporter": "metrics.names=reporter",
    "io.strimzi.kafka.metrics.prometheus.ServerYammerMetricsReporter": "metrics.names=reporter",
}
"""Java plug-ins whose work Ottla does by itself, and which setting does it."""
_KAFKA_PACKAGE: Final = "org.apache.kafka."
_SECURITY: Final = (
    ("principal.builder.class", ("configure", "build")),
    ("authorizer.class.name", ("configure", "authorize")),
    (VALIDATOR, ("configure", "validate")),
    (RETRIEVER, ("configure", "retrieve")),
)
_HANDLER: Final = "sasl.server.callback.handler.class"
_HANDLER_METHODS: Final[Mapping[str, str]] = {
    "plain": "authenticate",
    "scram-sha-256": "credential",
    "scram-sha-512": "credential",
    "oauthbearer": "validate",
}
"""What the class for a mechanism has."""
_POLICY_METHODS: Final = ("configure", "validate", "close")
REPORTER_METHODS: Final = ("configure", "close")


class PluginError(Exception):
    """A plug-in that cannot be loaded; the text says which, and what to write instead."""


def load_class(name: str, methods: tuple[str, ...] = ()) -> type[Any]:
    """Return the class that a setting names; PluginError when there is none with these methods."""
    path = java_counterparts().get(name, name)
    module, _, attribute = path.rpartition(".")
    try:
        _refuse_programs(module)
        found = getattr(import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may do anything when it is imported, end included
        raise PluginError(
            f"class {name} cannot be loaded ({error}): give the dotted path of a Python class; "
            f"no Python counterpart of a Java class of this name is installed"
        ) from error
    missing = [method for method in methods if not callable(getattr(found, method, None))]
    if not isinstance(found, type) or missing:
        lacking = ", ".join(missing) or "not a class"
        raise PluginError(f"{name} is no such plug-in, it lacks: {lacking}")
    return found


def _refuse_programs(module: str) -> None:
    """Leave alone what acts when it is imported; clients may name a class while the node runs.

    Python's own modules hold no plug-in, and some of them are programs.
    """
    names = module.split(".")
    if names[0] in sys.stdlib_module_names or any(name.startswith("__") for name in names):
        raise ImportError(f"{module} holds no plug-ins")


def java_counterparts() -> dict[str, str]:
    """Return Python paths by the Java names that installed packages offer them for."""
    return {
        entry.name: entry.value.replace(":", ".")
        for entry in entry_points(group=JAVA_CLASSES_GROUP)
    }


def load_plugin(name: str, methods: tuple[str, ...], settings: Mapping[str, Any]) -> Any:
    """Make an object of a plug-in class and hand it the node's settings; PluginError."""
    made = load_class(name, methods)
    try:
        plugin = made()
        plugin.configure(dict(settings))
    except Exception as error:
        raise PluginError(f"{name} cannot be configured: {error}") from error
    return plugin


def load_policies(config: BrokerConfig) -> Policies:
    """Return the policy objects that the two settings name; PluginError leaves none open."""
    policies = Policies(_load_policy(config, CREATE_TOPIC_POLICY))
    try:
        return policies._replace(alter_config=_load_policy(config, ALTER_CONFIG_POLICY))
    except PluginError:
        policies.close()
        raise


def _load_policy(config: BrokerConfig, setting: str) -> Any:
    name = config.value(setting)
    return load_plugin(name, _POLICY_METHODS, config.given) if name else None


def _named_by_file(config: BrokerConfig) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the classes of security: those of the node's own settings, Kafka's own left out."""
    for setting, text in config.given.items():
        methods = _methods_of(setting)
        if methods is not None and text and not is_kafkas(str(text)):
            yield setting, str(text), methods


def _methods_of(setting: str) -> tuple[str, ...] | None:
    """Return what the class of a setting needs, None for settings of other kinds."""
    if setting.endswith(_HANDLER):
        mechanism = setting.removesuffix(_HANDLER).rstrip(".").rpartition(".")[2]
        return handler_methods(mechanism)
    return next((found for end, found in _SECURITY if setting.endswith(end)), None)


def is_kafkas(name: str) -> bool:
    """Whether a class is one of Kafka's own: what it does is what Ottla does without a class."""
    return name.startswith(_KAFKA_PACKAGE)


def handler_methods(mechanism: str) -> tuple[str, ...]:
    """Return what a class needs that checks the logins of a mechanism."""
    return "configure", _HANDLER_METHODS.get(mechanism.lower(), "authenticate")


def plugin_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting that names a class which cannot be had."""
    named: list[tuple[str, str, tuple[str, ...]]] = [
        (setting, name, _POLICY_METHODS)
        for setting in (CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY)
        if (name := config.value(setting))
    ]
    named += [
        (METRIC_REPORTERS, name, REPORTER_METHODS)
        for name in config.metric_reporters
        if name and name not in JAVA_BUILT_IN
    ]
    named += _named_by_file(config)
    for setting, name, methods in named:
        try:
            load_class(name, methods)
        except PluginError as error:
            yield ConfigProblem(setting, name, f"{setting}: {error}")
