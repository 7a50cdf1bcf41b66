"""Settings from environment variables, by the rule of Apache Kafka's container image.

Kafka: kafka.docker.KafkaDockerWrapper, which writes them into server.properties at start.

`KAFKA_X` is the setting whose name has `.` for `_`, `_` for `__` and `-` for `___`, in lower case;
`KAFKA_CFG_X` of Bitnami's image is the same. `OTTLA_X` is one of Ottla's own settings by the same
rule. `KAFKA_X_FILE` gives the path of a file that contains the value, for secrets. Values are used
verbatim, without properties file escapes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.log_lines import log4j_levels
from ottla.config.problems import ConfigProblem, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

PREFIX: Final = "KAFKA_"
OWN_PREFIX: Final = "OTTLA_"
# Variables that the image and Kafka's scripts read themselves: JVM, log4j, directories.
NOT_SETTINGS: Final = frozenset(
    {
        "KAFKA_DEBUG",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
# Variables of other images, which have no effect here or are read by the command line.
_OF_IMAGES: Final = frozenset(
    {"KAFKA_CLUSTER_ID", "KAFKA_ENABLE_KRAFT", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_KRAFT_MODE"}
)
_SECRETS_DIRECTORY: Final = "/etc/kafka/secrets"
# The files of TLS listeners in Apache's image: names in its directory of secrets. A file of
# credentials contains the value itself.
_IMAGE_FILES: Final = {
    "KAFKA_SSL_KEYSTORE_FILENAME": ("ssl.keystore.location", False),
    "KAFKA_SSL_TRUSTSTORE_FILENAME": ("ssl.truststore.location", False),
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": ("ssl.keystore.password", True),
    "KAFKA_SSL_KEY_CREDENTIALS": ("ssl.key.password", True),
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": ("ssl.truststore.password", True),
}
_OPTIONS: Final = "KAFKA_OPTS"
_ROOT_LEVEL: Final = "KAFKA_LOG4J_ROOT_LOGLEVEL"
_LOGGERS: Final = "KAFKA_LOG4J_LOGGERS"
_LOG_LEVEL: Final = "log.level"
_BITNAMI_PREFIX: Final = "KAFKA_CFG_"
# Kubernetes sets such variables for every service, also for one named "kafka".
_SERVICE_LINK = re.compile(
    r"KAFKA(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)"
)
_FILE = ".file"


class SourcedValue(NamedTuple):
    """A value as text, and its source: `server.properties:3`, `KAFKA_NODE_ID`, …."""

    value: str
    origin: str


class EnvironmentSettings(NamedTuple):
    """The settings from the environment by dotted name, with errors and warnings."""

    settings: dict[str, SourcedValue]
    problems: list[ConfigProblem]
    warnings: list[str]
    variables: Mapping[str, str] = {}
    """All variables, for `config.providers`."""
    login_file: SourcedValue | None = None
    """The text of the login file that KAFKA_OPTS names."""


NOTHING: Final = EnvironmentSettings({}, [], [])


def property_name(variable: str) -> str:
    """Return the dotted name that a variable `KAFKA_…` or `OTTLA_…` stands for."""
    name = variable.removeprefix(_BITNAMI_PREFIX)
    name = name if name != variable else variable.partition("_")[2]
    name = name.lower().replace("_", ".")
    return name.replace("...", "-").replace("..", "_")


def read_environment(
    environ: Mapping[str, str],
    *,
    is_known: Callable[[str], bool],
    own: Collection[str],
    read_file: Callable[[str], str],
    login_file_path: Callable[[str], str | None] = lambda _options: None,
) -> EnvironmentSettings:
    """Read the settings from the environment; `own` are the names allowed for OTTLA_.

    `read_file` returns the text of a file or raises OSError; `login_file_path` finds the login file
    in the options of a Java process. Unknown KAFKA_ names are included; the parser of the
    configuration reports them.
    """
    found = EnvironmentSettings({}, [], [], environ)
    ignored: list[str] = []
    levels: list[str] = []
    for variable, value in sorted(environ.items()):
        if variable.startswith(OWN_PREFIX):
            _read_own(variable, value, own, found)
        elif variable in (_ROOT_LEVEL, _LOGGERS):
            levels.append(variable)
        elif variable == _OPTIONS and (path := login_file_path(value)) is not None:
            found = _with_login_file(path, found, read_file)
        elif variable in NOT_SETTINGS:
            ignored.append(variable)
        elif variable in _IMAGE_FILES:
            _read_image_file(variable, value, found, read_file)
        elif variable.startswith(PREFIX) and variable not in _OF_IMAGES:
            _read(variable, value, found, is_known, read_file)
    if levels and _LOG_LEVEL in own and _LOG_LEVEL not in found.settings:
        text = log4j_levels(environ.get(_ROOT_LEVEL, ""), environ.get(_LOGGERS, ""))
        found.settings[_LOG_LEVEL] = SourcedValue(text, " and ".join(levels))
    if ignored:
        found.warnings.append(f"{', '.join(ignored)}: ignored, they configure the JVM or log4j")
    return found


def _with_login_file(
    path: str, found: EnvironmentSettings, read_file: Callable[[str], str]
) -> EnvironmentSettings:
    """Read Java's login file; the other options of the variable configure the JVM."""
    found.warnings.append(f"{_OPTIONS}: only its login file {path} is read")
    try:
        text = read_file(path)
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        reason = f"cannot read the login file {path}, which {_OPTIONS} names: {cause}"
        found.problems.append(ConfigProblem("sasl.jaas.config", None, reason))
        return found
    return found._replace(login_file=SourcedValue(text, f"{_OPTIONS}: {path}"))


def _read(
    variable: str,
    value: str,
    found: EnvironmentSettings,
    is_known: Callable[[str], bool],
    read_file: Callable[[str], str],
) -> None:
    name = property_name(variable)
    secret = name.removesuffix(_FILE)
    if not is_known(name):
        if _SERVICE_LINK.fullmatch(variable):
            return
        if secret != name and is_known(secret):
            _read_secret(variable, secret, found, (value, read_file))
            return
    _put(name, SourcedValue(value, variable), found)


def _read_secret(
    variable: str, name: str, found: EnvironmentSettings, source: tuple[str, Callable[[str], str]]
) -> None:
    """Read the value from a file, without a trailing line end."""
    path, read_file = source
    try:
        value = read_file(path).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        reason = f"cannot read {path}, which {variable} names: {cause}"
        found.problems.append(ConfigProblem(name, None, reason))
        return
    _put(name, SourcedValue(value, variable), found)


def _read_image_file(
    variable: str, value: str, found: EnvironmentSettings, read_file: Callable[[str], str]
) -> None:
    """Read a variable that names a file in the directory of secrets of Apache's image."""
    path = value if value.startswith("/") else f"{_SECRETS_DIRECTORY}/{value}"
    name, is_secret = _IMAGE_FILES[variable]
    if is_secret:
        _read_secret(variable, name, found, (path, read_file))
    else:
        _put(name, SourcedValue(path, variable), found)


def _put(name: str, setting: SourcedValue, found: EnvironmentSettings) -> None:
    other = found.settings.get(name)
    if other is not None:
        reason = f"{other.origin} and {setting.origin} both give {name}; keep one of them"
        found.problems.append(ConfigProblem(name, None, reason))
    found.settings[name] = setting


def _read_own(variable: str, value: str, own: Collection[str], found: EnvironmentSettings) -> None:
    """Read one of Ottla's own settings; tests and benchmarks have OTTLA_ variables, too."""
    name = property_name(variable)
    if name in own:
        _put(name, SourcedValue(value, variable), found)
        return
    meant = nearest(name, own)
    if meant is not None:
        spelt = OWN_PREFIX + meant.replace(".", "_").upper()
        message = f"{variable} is no setting; did you mean {spelt}?"
        found.problems.append(ConfigProblem(name, value, message))
