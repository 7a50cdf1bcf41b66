"""Plug-ins that settings name, the authorizer among them: Python classes, or known Java names.

A name is the dotted path of a Python class. The name of a Java class is accepted when it has a
counterpart: a function of Ottla itself (JAVA_BUILT_IN), or a Python class that an installed package
registers in the entry point group `ottla.java_classes`.

What the node's own settings name is imported. A name that came over the network is only looked up
among the entry points of the groups `ottla.java_classes` and `ottla.plugins`.

Kafka: AbstractConfig.getConfiguredInstance, which loads Java classes from the class path;
org.apache.kafka.metadata.publisher.AclPublisher.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from ottla.config.broker.remote_log import METADATA_CLIENTS, RemoteMetadataSettings
from ottla.config.broker.unsupported import STANDARD_AUTHORIZER
from ottla.config.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.problems import ConfigProblem
from ottla.controller.acls import acl_of
from ottla.controller.policies import Policies
from ottla.network.token_retrieval import RETRIEVER, VALIDATOR
from ottla.security.acl import Operation, ResourceType
from ottla.security.authorizer import Decision, StandardAuthorizer, str_of
from ottla.security.principal import parse_principal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from ottla.config.broker import BrokerConfig
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image.image import MetadataImage
    from ottla.security.principal import Principal
    from ottla.storage.directory import Directory
    from ottla.storage.remote.storage_manager import ConnectedStorage

    Listener = Callable[[MetadataDelta, MetadataImage], None]

CREATE_TOPIC_POLICY: Final = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY: Final = "alter.config.policy.class.name"
METRIC_REPORTERS: Final = "metric.reporters"
STORAGE_MANAGER: Final = "remote.log.storage.manager.class.name"
JAVA_CLASSES_GROUP: Final = "ottla.java_classes"
PLUGINS_GROUP: Final = "ottla.plugins"
STORAGE_GROUP: Final = "ottla.storage"
"""Storage managers of installed packages, by short names or by Java classes they replace."""
JAVA_BUILT_IN: Final[Mapping[str, str]] = {
    "org.apache.kafka.common.metrics.JmxReporter": "the endpoint of metrics.listener",
    "io.strimzi.kafka.metrics.prometheus.ServerKafkaMetricsReporter": "metrics.names=reporter",
    "io.strimzi.kafka.metrics.prometheus.ServerYammerMetricsReporter": "metrics.names=reporter",
}
"""Java plug-ins whose function is built in, each with the setting that enables it."""
_STORAGE_MANAGERS: Final = "ottla.storage.remote.managers."
SHIPPED_STORAGE: Final[Mapping[str, str]] = {
    "directory": f"{_STORAGE_MANAGERS}directory.DirectoryStorage",
    "object-store": f"{_STORAGE_MANAGERS}object_store.ObjectStorage",
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage": (
        f"{_STORAGE_MANAGERS}directory.DirectoryStorage"
    ),
}
"""Storage managers of Ottla by their names; Kafka's has the layout of the directory."""
STORAGE_METHODS: Final = (
    "configure",
    "copy_segment",
    "read_segment",
    "read_index",
    "delete_segment",
    "close",
)
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
"""The method that the class for a mechanism must have."""
_POLICY_METHODS: Final = ("configure", "validate", "close")
REPORTER_METHODS: Final = ("configure", "close")


class PluginError(Exception):
    """A plug-in cannot be loaded; the text names it, and what to set instead."""


def load_class(name: str, methods: tuple[str, ...] = ()) -> type[Any]:
    """Return the class that a setting names; PluginError when there is none with these methods."""
    path = java_counterparts().get(name, name)
    module, _, attribute = path.rpartition(".")
    try:
        _refuse_programs(module)
        found = getattr(import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an imported module may even exit
        raise PluginError(
            f"class {name} cannot be loaded ({error}): give the dotted path of a Python class; "
            f"no Python counterpart of a Java class of this name is installed"
        ) from error
    if not isinstance(found, type):
        raise PluginError(f"{name} is not a class")
    missing = [method for method in methods if not callable(getattr(found, method, None))]
    if missing:
        raise PluginError(f"{name} is no such plug-in, it lacks: {', '.join(missing)}")
    return found


def _refuse_programs(module: str) -> None:
    """Raise ImportError for modules of the standard library: some of them run when imported."""
    names = module.split(".")
    if names[0] in sys.stdlib_module_names or any(name.startswith("__") for name in names):
        raise ImportError(f"{module} holds no plug-ins")


def java_counterparts() -> dict[str, str]:
    """Return Python paths by the Java names that installed packages offer them for."""
    return {
        entry.name: entry.value.replace(":", ".")
        for entry in entry_points(group=JAVA_CLASSES_GROUP)
    }


def is_registered(name: str) -> bool:
    """Whether an installed package offers a class under this name; nothing is imported.

    The metadata of all packages are read: call it in a worker.
    """
    offered = java_counterparts()
    plugins = {point.value.replace(":", ".") for point in entry_points(group=PLUGINS_GROUP)}
    return name in plugins or name in offered or name in offered.values()


def load_plugin(name: str, methods: tuple[str, ...], settings: Mapping[str, Any]) -> Any:
    """Return a configured object of a plug-in class; PluginError when that fails."""
    made = load_class(name, methods)
    try:
        plugin = made()
        plugin.configure(dict(settings))
    except Exception as error:
        raise PluginError(f"{name} cannot be configured: {error}") from error
    return plugin


def load_storage_class(name: str) -> type[Any]:
    """Return the class of a storage manager by short name, Java name or dotted path; PluginError.

    A Java name without a counterpart is refused: its objects may have another layout.
    """
    if not name:
        raise PluginError("tiered storage needs the class of a storage manager")
    named = {
        entry.name: entry.value.replace(":", ".") for entry in entry_points(group=STORAGE_GROUP)
    }
    return load_class(SHIPPED_STORAGE.get(name) or named.get(name, name), STORAGE_METHODS)


def load_storage_manager(
    config: BrokerConfig, open_directory: Callable[[str], Directory], cluster_id: str
) -> ConnectedStorage:
    """Return the configured storage manager, not connected; PluginError without its class."""
    from ottla.storage.remote.managers.directory import DirectoryStorage
    from ottla.storage.remote.storage_manager import ConnectedStorage

    name = config.remote_log_storage_manager_class_name or ""
    made = load_storage_class(name)
    own = config.given_after(config.remote_log_storage_manager_impl_prefix)
    try:
        manager = made(open_directory) if issubclass(made, DirectoryStorage) else made()
    except Exception as error:
        raise PluginError(f"{name} cannot be made: {error}") from error
    settings = {**own, "broker.id": str(config.node_id), "cluster.id": cluster_id}
    return ConnectedStorage(name, manager, settings)


def load_policies(config: BrokerConfig) -> Policies:
    """Return the policies of both settings; PluginError closes the one already created."""
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
    """Yield the security classes that the node's own settings name, without Kafka's own."""
    for setting, text in config.given.items():
        methods = _methods_of(setting)
        if methods is not None and text and not is_kafkas(str(text)):
            yield setting, str(text), methods


def _methods_of(setting: str) -> tuple[str, ...] | None:
    """Return the methods that the class of a setting needs; None for other settings."""
    if setting.endswith(_HANDLER):
        mechanism = setting.removesuffix(_HANDLER).rstrip(".").rpartition(".")[2]
        return handler_methods(mechanism)
    return next((found for end, found in _SECURITY if setting.endswith(end)), None)


def is_kafkas(name: str) -> bool:
    """Whether a class is one of Kafka's own: these are Ottla's behaviour without a class."""
    return name.startswith(_KAFKA_PACKAGE)


def handler_methods(mechanism: str) -> tuple[str, ...]:
    """Return the methods that a class needs to check the logins of a mechanism."""
    return "configure", _HANDLER_METHODS.get(mechanism.lower(), "authenticate")


def plugin_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield a problem for each setting whose class cannot be loaded."""
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
    if config.remote_log_storage_system_enable:
        prefix = config.remote_log_metadata_manager_impl_prefix
        for problem in RemoteMetadataSettings.definitions.read(config.given_after(prefix)).problems:
            yield problem._replace(name=f"{prefix}{problem.name}")
        yield from _metadata_client_problems(config)
        named.append((STORAGE_MANAGER, config.remote_log_storage_manager_class_name or "", ()))
    for setting, name, methods in named:
        try:
            if setting == STORAGE_MANAGER:
                load_storage_class(name)
            else:
                load_class(name, methods)
        except PluginError as error:
            yield ConfigProblem(setting, name, f"{setting}: {error}")


def _metadata_client_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield problems of the metadata topic's clients: Kafka's do not start with such values."""
    kinds = {"producer": ProducerConfig, "consumer": ConsumerConfig, "admin": AdminConfig}
    for client, kind in kinds.items():
        given = config.remote_metadata_client(kind, client).given
        for problem in kind.definitions.read(given).problems:
            for scope in (client, "common.client"):
                prefix = (
                    f"{config.remote_log_metadata_manager_impl_prefix}{METADATA_CLIENTS[scope]}"
                )
                if f"{prefix}{problem.name}" in config.given:  # else the broker sets it
                    yield problem._replace(name=f"{prefix}{problem.name}")
                    break


def kafka_unloadable(config: BrokerConfig) -> Iterator[str]:
    """Yield `setting=class` of the Python classes, which Kafka does not start with."""
    named = [
        (setting, config.value(setting)) for setting in (CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY)
    ]
    named += [(METRIC_REPORTERS, name) for name in config.metric_reporters]
    named += [(setting, name) for setting, name, _ in _named_by_file(config)]
    if config.remote_log_storage_system_enable:
        named.append((STORAGE_MANAGER, config.remote_log_storage_manager_class_name))
    java = {*JAVA_BUILT_IN, *java_counterparts()}
    java |= {point.name for point in entry_points(group=STORAGE_GROUP)}
    for setting, name in named:
        if name and name not in java and not is_kafkas(name):
            yield f"{setting}={name}"


log = logging.getLogger("ottla.authorizer")
AUTHORIZER_METHODS: Final = ("configure", "authorize")
_SUPER_USERS: Final = "super.users"
_ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"


def authorizer_of(
    config: BrokerConfig, add_listener: Callable[[Listener], None]
) -> StandardAuthorizer | None:
    """Return the authorizer of authorizer.class.name, kept current by the metadata, or None."""
    if not config.authorizer_class_name:
        return None
    if config.authorizer_class_name != STANDARD_AUTHORIZER:
        name = config.authorizer_class_name
        plugin = load_plugin(name, AUTHORIZER_METHODS, config.given)
        own = PluginAuthorizer(plugin, _super_users(config))
        add_listener(AclPublisher(own).metadata_changed)
        return own
    allows = str(config.given.get(_ALLOW_EVERYONE, "false")).strip().lower() == "true"
    authorizer = StandardAuthorizer(_super_users(config), allows_without_acl=allows)
    add_listener(AclPublisher(authorizer).metadata_changed)
    return authorizer


def _super_users(config: BrokerConfig) -> list[str]:
    text = str(config.given.get(_SUPER_USERS) or "")
    return [str(parse_principal(name.strip())) for name in text.split(";") if name.strip()]


class PluginAuthorizer(StandardAuthorizer):
    """Calls a Python class; super users may do everything, and an exception denies.

    `authorize(principal, host, operation, resource_type, name)` gets texts in Kafka's spelling. Its
    results are not cached. Entries are stored and described, but not passed to the class.
    """

    def __init__(self, plugin: Any, super_users: Collection[str]) -> None:
        super().__init__(super_users, allows_without_acl=False)
        self._plugin = plugin
        self._supers = frozenset(super_users)

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: int,
        resource_type: int,
        name: str,
        *,
        request: int | None = None,
        is_audited: bool = True,
        is_logged: bool = True,
    ) -> bool:
        """Call the class for each decision: discard the cached ones."""
        self._changed()
        return super().authorize(
            principal,
            host,
            operation,
            resource_type,
            name,
            request=request,
            is_audited=is_audited,
            is_logged=is_logged,
        )

    def authorize_any(
        self, principal: Principal, host: str, operation: int, resource_type: int
    ) -> bool:
        """Call the class with an empty resource name."""
        return self.decide(str_of(principal), host, operation, resource_type, "").is_allowed

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        """Call the class; deny when it raises."""
        if principal in self._supers:
            return Decision(is_allowed=True, rule="SuperUser")
        words = Operation(operation).name, ResourceType(resource_type).name
        try:
            found = self._plugin.authorize(principal, host, *words, name) is True
        except Exception:
            log.exception(
                "the authorizer failed: denied; correct the class, the traceback says where",
                extra={"event": "acl.failed"},
            )
            found = False
        return Decision(found, type(self._plugin).__name__)


class AclPublisher:
    """Applies committed entries to the authorizer."""

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self._authorizer = authorizer

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply committed metadata."""
        by_id = image.acls.by_id
        for acl_id in delta.acls_changed:
            record = by_id.get(acl_id)
            if record is None:
                self._authorizer.remove(acl_id)
            else:
                self._authorizer.add(acl_id, acl_of(record))
        self._authorizer.is_loaded = True


def authorizer_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield what is wrong with the authorizer's own settings."""
    try:
        _super_users(config)
    except ValueError as error:
        shown = str(config.given.get(_SUPER_USERS))
        yield ConfigProblem(_SUPER_USERS, shown, f"{_SUPER_USERS}: {error}")
