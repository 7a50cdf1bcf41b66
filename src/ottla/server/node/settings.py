"""The settings of a node, read and checked before its start, those of security included.

Kafka: kafka.Kafka.getPropsFromArgs; Kafka does not start without a file. Precedence, lowest first:
file (or the development defaults), KAFKA_… variables, OTTLA_… variables, overrides;
kafka.server.KafkaConfig.validateValues, DynamicBrokerConfig's DynamicListenerConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.config.broker.unsupported import removed_setting, unsupported_settings
from ottla.config.dynamic import definition_of, listener_problems
from ottla.config.environment import NOTHING, EnvironmentSettings, SourcedValue, read_environment
from ottla.config.listener_settings import ListenerSettings
from ottla.config.own import OwnSettings
from ottla.config.problems import ConfigErrors, ConfigProblem
from ottla.config.properties import read_properties
from ottla.config.providers import resolve
from ottla.config.topic import BROKER_SYNONYMS, local_retention_problems
from ottla.errors import ConfigError
from ottla.network.tls_context import exposed_key, identity_change, identity_of, server_context
from ottla.network.token_retrieval import TOKEN_URL, token_retriever
from ottla.security.distinguished_name import parse_rules
from ottla.security.jaas import SERVER, entries_by_mechanism, login_file_path
from ottla.security.sasl.gssapi import GSSAPI
from ottla.security.sasl.oauthbearer import OAUTHBEARER
from ottla.security.sasl.plain import PLAIN
from ottla.security.sasl.scram import HASHES
from ottla.server.node.login_handlers import (
    JAAS,
    MAPPING_RULES,
    MECHANISMS,
    SASL_PROTOCOLS,
    SUPPORTED,
    TLS_PROTOCOLS,
    handler_name,
    jaas_options,
    kerberos_settings,
    listener_tls,
    peer_token_settings,
    token_problems,
)
from ottla.server.node.plugins import authorizer_problems, plugin_problems
from ottla.server.system.kerberos import acceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

DEVELOPMENT_DIRECTORY = "ottla-data"
_CONFLUENT = "confluent."
DEVELOPMENT_PORT = 9092
DEVELOPMENT_ORIGIN = "node without a file"
OVERRIDE_ORIGIN = "--override"
PORT_ORIGIN = "--port"


class ConfigFile(NamedTuple):
    """A properties file that was read: its name as the user wrote it, and its text."""

    name: str
    text: str


class StartSettings(NamedTuple):
    """The settings of a start; a development node formats its directory by itself."""

    config: BrokerConfig
    is_development: bool
    warnings: tuple[str, ...] = ()
    """Unknown names among others: ignored, as in Kafka."""
    given: Mapping[str, SourcedValue] = {}
    """The given settings with their origins; all others have defaults."""


def development_defaults(port: int = DEVELOPMENT_PORT) -> dict[str, str]:
    """Return the settings of a node that is started without a file: one copy of everything."""
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "log.dirs": f"./{DEVELOPMENT_DIRECTORY}",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",
    }


def parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    """Read `key=value` texts; ValueError names the one without `=`."""
    settings = {}
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator:
            raise ValueError(f"--override takes key=value, not {override!r}")
        settings[name.strip()] = value.strip()
    return settings


def node_environment(
    environ: Mapping[str, str], read_file: Callable[[str], str]
) -> EnvironmentSettings:
    """Read the variables that give a node's settings; `read_file` opens what *_FILE names."""
    return read_environment(
        environ,
        is_known=lambda name: name in OwnSettings.keys or definition_of(name) is not None,
        own=tuple(OwnSettings.keys),
        read_file=read_file,
        login_file_path=login_file_path,
    )


def node_settings(
    file: ConfigFile | None,
    overrides: Mapping[str, str],
    *,
    port: int | None = None,
    environment: EnvironmentSettings = NOTHING,
) -> StartSettings:
    """Merge environment and overrides over the file, or over the development defaults without one.

    Raises ConfigErrors with all problems and their origins: invalid values, unsupported settings,
    and unknown names of overrides. Those of files and variables are warnings, as in Kafka: they
    were written for it, perhaps for an older one.
    """
    given, warnings = gather(file, overrides, port=port, environment=environment)
    resolved = resolve(texts(given), environment.variables)
    given = {name: one._replace(value=resolved.values[name]) for name, one in given.items()}
    config, found = _parse(resolved.values)
    found = [*resolved.problems, *found]
    unknown = _with_origins(map(_with_advice, config.unknown_settings), given)
    misspelt = [problem for problem in unknown if problem.name in overrides]
    found += _zookeeper_problems(given)
    problems = [*environment.problems, *_with_origins(found, given), *misspelt]
    if problems:
        raise ConfigErrors(problems)
    warnings += [problem.message for problem in unknown]
    replicas = config.offsets_topic_replication_factor
    if replicas > 1 and _names_no_other_node(config):
        warnings.append(
            f"offsets.topic.replication.factor is {replicas} and must be 1 if the cluster has one "
            "broker: otherwise groups find no coordinator"
        )
    return StartSettings(config, file is None, (*warnings, *environment.warnings), given)


def _names_no_other_node(config: BrokerConfig) -> bool:
    """Whether the settings name no other node of the cluster."""
    return config.is_broker and config.is_controller and not config.has_other_controllers


def gather(
    file: ConfigFile | None,
    overrides: Mapping[str, str],
    *,
    port: int | None = None,
    environment: EnvironmentSettings = NOTHING,
) -> tuple[dict[str, SourcedValue], list[str]]:
    """Merge all sources by precedence; return the unparsed values, and warnings."""
    given, warnings = _base(file, DEVELOPMENT_PORT if port is None else port)
    listeners = given.get("listeners")
    given.update(environment.settings)
    if port is not None and listeners is not None:
        given["listeners"] = SourcedValue(listeners.value, PORT_ORIGIN)
    given.update({name: SourcedValue(value, OVERRIDE_ORIGIN) for name, value in overrides.items()})
    if environment.login_file is not None:
        given = {**_logins(environment.login_file, given, environment.problems), **given}
    return given, warnings


def _logins(
    file: SourcedValue, given: Mapping[str, SourcedValue], problems: list[ConfigProblem]
) -> dict[str, SourcedValue]:
    """Return the logins of each listener in Java's login file, as listeners' own settings."""
    found: dict[str, SourcedValue] = {}
    named = [
        entry.partition("://")[0].strip().lower()
        for name in ("listeners", "controller.listener.names")
        if name in given
        for entry in given[name].value.split(",")
    ]
    for listener in dict.fromkeys(named):
        try:
            entries = entries_by_mechanism(file.value, f"{listener}.{SERVER}", SERVER)
        except ValueError as error:
            problems.append(ConfigProblem(JAAS, None, f"{error} ({file.origin})"))
            return {}
        for mechanism, text in entries.items():
            name = f"listener.name.{listener}.{mechanism.lower()}.{JAAS}"
            found[name] = SourcedValue(text, file.origin)
    return found


def texts(given: Mapping[str, SourcedValue]) -> dict[str, str]:
    """Return the values alone."""
    return {name: one.value for name, one in given.items()}


def _base(file: ConfigFile | None, port: int) -> tuple[dict[str, SourcedValue], list[str]]:
    """Return the values of lowest precedence, and a warning for each repeated name of the file."""
    if file is None:
        defaults = development_defaults(port)
        return {name: SourcedValue(text, DEVELOPMENT_ORIGIN) for name, text in defaults.items()}, []
    given: dict[str, SourcedValue] = {}
    warnings = []
    for found in read_properties(file.text):
        origin = f"{file.name}:{found.line}"
        if found.name in given:
            before = given[found.name].origin
            warnings.append(f"{found.name} is given twice, {origin} counts, not {before}")
        given[found.name] = SourcedValue(found.value, origin)
    return given, warnings


def _parse(given: dict[str, str]) -> tuple[BrokerConfig, list[ConfigProblem]]:
    """Return the configuration and its problems.

    Invalid settings make no configuration: their unknown names are then checked with valid ones, so
    that all problems are reported at once.
    """
    try:
        config = parse_broker_config(given)
    except ConfigErrors as error:
        tables = BrokerConfig.keys.keys() | OwnSettings.keys.keys()
        foreign = {name: text for name, text in given.items() if name not in tables}
        config = parse_broker_config({**development_defaults(), **foreign})
        return config, [*error.problems, *listener_problems(given)]
    return config, [
        *unsupported_settings(config),
        *(local_retention_problems(config) if config.remote_log_storage_system_enable else ()),
        *listener_problems(given),
        *plugin_problems(config),
        *security_problems(config),
        *authorizer_problems(config),
    ]


def _with_advice(one: ConfigProblem) -> ConfigProblem:
    """Return the problem of an unknown name with what is known about it."""
    if one.name.startswith(_CONFLUENT):  # it resembles none of ours
        return one._replace(message=f"{one.name} is ignored: it belongs to a plug-in of Confluent")
    removed = removed_setting(one.name)
    if removed is not None:
        return one._replace(message=removed)
    synonyms = BROKER_SYNONYMS.get(one.name)
    if synonyms is not None:
        text = f"{one.name} is a setting of topics and has no effect here: set {synonyms[0]}"
        return one._replace(message=text)
    return one


def _zookeeper_problems(given: Mapping[str, SourcedValue]) -> list[ConfigProblem]:
    """Refuse the settings of a ZooKeeper node; with KRaft's process.roles they are a warning."""
    connect, roles = given.get("zookeeper.connect"), given.get("process.roles")
    if connect is None or (roles is not None and roles.origin != DEVELOPMENT_ORIGIN):
        return []
    text = (
        f"zookeeper.connect={connect.value} requires ZooKeeper, which Kafka 4 does not support any "
        "more: remove it and set process.roles=broker,controller"
    )
    return [ConfigProblem("zookeeper.connect", connect.value, text)]


def _with_origins(
    problems: Iterable[ConfigProblem], given: Mapping[str, SourcedValue]
) -> list[ConfigProblem]:
    """Append the origin of the setting to each problem."""
    shown = []
    for problem in problems:
        found = given.get(problem.name)
        ending = "" if found is None else f" ({found.origin})"
        shown.append(problem._replace(message=problem.message + ending))
    return shown


def security_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield the problems of the logins and certificates of listeners."""
    yield from _peer_problems(config)
    for endpoint in config.endpoints:
        settings = ListenerSettings(config, endpoint.listener)
        if endpoint.security_protocol in SASL_PROTOCOLS:
            yield from _login_problems(settings)
        if endpoint.security_protocol in TLS_PROTOCOLS:
            try:
                tls = listener_tls(settings)
                server_context(tls)
                exposed = exposed_key(tls.keys)
                if exposed and config.own.ssl_keystore_require_private:
                    yield ConfigProblem("listeners", str(endpoint), exposed)
                parse_rules(settings.value(MAPPING_RULES))
            except ValueError as error:
                text = f"listener {endpoint.listener}: {error}"
                yield ConfigProblem("listeners", str(endpoint), text)


def security_refusal(current: BrokerConfig, proposed: BrokerConfig) -> str | None:
    """Return why changed settings leave a listener without certificates or a usable login.

    A listener's new certificate must name the same node.
    """
    found = next((problem.message for problem in security_problems(proposed)), None)
    if found is not None:
        return found
    known = {endpoint.listener for endpoint in current.endpoints}
    for endpoint in proposed.endpoints:
        if endpoint.listener in known and endpoint.security_protocol in TLS_PROTOCOLS:
            before, after = (
                listener_tls(ListenerSettings(config, endpoint.listener))
                for config in (current, proposed)
            )
            refusal = before.keys != after.keys and identity_change(
                identity_of(before.keys),
                identity_of(after.keys),
                allows_dn=after.allows_dn_changes,
                allows_san=after.allows_san_changes,
            )
            if refusal:
                return refusal
    return None


def _peer_problems(config: BrokerConfig) -> Iterator[ConfigProblem]:
    """Yield the problems of this node's own logins at other nodes."""
    controllers = next(iter(config.controller_listener_names or ()), "").upper()
    is_quorum = len(config.voters) > 1 or len(config.bootstrap_controllers) > 1
    for listener, key in (
        (config.inter_broker_endpoint_name, "sasl.mechanism.inter.broker.protocol"),
        (controllers, "sasl.mechanism.controller.protocol"),
    ):
        if config.security_protocols.get(listener) not in SASL_PROTOCOLS:
            continue
        mechanism = config.value(key)
        if mechanism not in SUPPORTED:
            text = f"{key}={mechanism} is not supported, use one of {', '.join(SUPPORTED)}"
            yield ConfigProblem(key, mechanism, text)
            continue
        if mechanism == OAUTHBEARER:
            yield from _token_problems(ListenerSettings(config, listener))
            continue
        if mechanism == GSSAPI:
            settings = ListenerSettings(config, listener)
            is_own = listener in {endpoint.listener for endpoint in config.endpoints}
            if not is_own or GSSAPI not in settings.value(MECHANISMS):
                yield from _kerberos_problems(settings, key)
            continue  # otherwise reported with the listener
        if listener == controllers and mechanism in HASHES and is_quorum:
            text = (
                f"{key}={mechanism}: the voters of a quorum cannot log in with credentials that "
                "are in the metadata log, which they would wait for; use PLAIN or TLS"
            )
            yield ConfigProblem(key, mechanism, text)
        try:
            options = jaas_options(ListenerSettings(config, listener), mechanism)
        except ValueError:
            continue  # reported with the listener
        if not {"username", "password"} <= set(options):
            name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
            text = f"{name} must have username and password: this node logs in at other nodes"
            yield ConfigProblem(name, None, text)


def _token_problems(settings: ListenerSettings) -> Iterator[ConfigProblem]:
    """Yield why this node cannot get a token for other nodes."""
    try:
        token_retriever(peer_token_settings(lambda: settings, None))
    except ConfigError as error:
        yield ConfigProblem(TOKEN_URL, settings.value(TOKEN_URL, OAUTHBEARER), str(error))
    except ValueError:
        return  # of the JAAS text, reported with the listener


def _kerberos_problems(settings: ListenerSettings, key: str) -> Iterator[ConfigProblem]:
    """Yield why GSSAPI cannot be used on a listener: the extra, the keytab, a rule."""
    try:
        acceptor(kerberos_settings(settings))
    except ConfigError as error:
        text = f"{key}: {GSSAPI} for listener {settings.listener}: {error}"
        yield ConfigProblem(key, GSSAPI, text)
    except ValueError:
        return  # of the JAAS text, reported with the listener


def _login_problems(settings: ListenerSettings) -> Iterator[ConfigProblem]:
    names = settings.value(MECHANISMS)
    shown = ",".join(names)
    unsupported = [name for name in names if name not in SUPPORTED]
    if unsupported:
        text = (
            f"{MECHANISMS}={shown} for listener {settings.listener}: {', '.join(unsupported)} is "
            f"not supported, use some of {', '.join(SUPPORTED)}"
        )
        yield ConfigProblem(MECHANISMS, shown, text)
    if OAUTHBEARER in names and handler_name(settings, OAUTHBEARER) is None:
        yield from token_problems(settings)
    if GSSAPI in names:
        yield from _kerberos_problems(settings, MECHANISMS)
    for name in names:
        key = f"{settings.prefix}{name.lower()}.{JAAS}"
        try:
            options = jaas_options(settings, name)
        except ValueError as error:
            yield ConfigProblem(key, "[hidden]", f"{key}: {error}")
            continue
        if (
            name == PLAIN
            and handler_name(settings, PLAIN) is None
            and not any(option.startswith("user_") for option in options)
        ):
            text = f'{key} must name users, as user_alice="password" of the PlainLoginModule'
            yield ConfigProblem(key, None, text)
