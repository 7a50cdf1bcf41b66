"""References to values in files and variables: `${file:/run/secrets/db:password}`.

`config.providers` names the providers, `config.providers.<name>.class` their classes. Only
what is given locally is resolved: a node's own file, variables and flags, and a client's settings.
A value that comes over the network (AlterConfigs) stays as it is (CVE-2024-31141).

Kafka: org.apache.kafka.common.config.ConfigTransformer and
config.provider.{FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider}.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.config.problems import ConfigProblem
from ottla.config.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PROVIDERS: Final = "config.providers"
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_MAX_BYTES: Final = 1 << 20
_PACKAGE: Final = "org.apache.kafka.common.config.provider."


class ProviderError(ValueError):
    """A value that cannot be resolved; the text contains no secret."""


class Provider(Protocol):
    """Finds a value by its path and key."""

    def get(self, path: str, key: str) -> str | None:
        """Return the value, None for an unknown name. Raises ProviderError."""


class _Paths:
    """The files that may be read; all without `allowed.paths`."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        listed = [path.strip() for path in parameters.get("allowed.paths", "").split(",")]
        self._allowed = [Path(path) for path in listed if path]
        for path in self._allowed:
            if not path.is_absolute():
                raise ProviderError(f"Path {path} is not absolute")
            if not path.exists():
                raise ProviderError(f"Path {path} does not exist")

    def checked(self, path: str) -> Path | None:
        """Return the path without `..` and links, None for one that is not allowed."""
        found = Path(os.path.realpath(path))
        allowed = [Path(os.path.realpath(path)) for path in self._allowed]
        return (
            found
            if not allowed or any(found.is_relative_to(directory) for directory in allowed)
            else None
        )


class FileProvider:
    """Keys of properties files: `${file:/path/to/file.properties:key}`."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._paths = _Paths(parameters)

    def get(self, path: str, key: str) -> str | None:
        """Return a property."""
        found = self._paths.checked(path) if path else None
        if found is None:
            return None
        failure = f"Could not read properties from file {found}"
        try:
            return parse_properties(_read(found, failure)).get(key)
        except PropertiesError as error:
            raise ProviderError(f"{failure}: {error}") from None


class DirectoryProvider:
    """Whole files of a directory: `${directory:/run/secrets:password}`."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._paths = _Paths(parameters)

    def get(self, path: str, key: str) -> str | None:
        """Return a file's text."""
        found = self._paths.checked(path) if path else None
        if found is None or "/" in key or key in {"", ".", ".."}:
            return None
        file = found / key
        text = f"Could not read file {file} for property {key}"
        return _read(file, text) if file.is_file() else None


class EnvironmentProvider:
    """Variables of the environment: `${env:DATABASE_PASSWORD}`."""

    def __init__(self, parameters: Mapping[str, str], environ: Mapping[str, str]) -> None:
        pattern = parameters.get("allowlist.pattern", ".*")
        self._environ = environ
        try:
            self._allowed = re.compile(pattern)
        except re.error as error:
            raise ProviderError(f"allowlist.pattern {pattern!r} is no pattern: {error}") from None

    def get(self, path: str, key: str) -> str | None:
        """Return a variable that the pattern allows."""
        if path:
            text = f"Path is not supported for EnvVarConfigProvider, invalid value '{path}'"
            raise ProviderError(text)
        return self._environ.get(key) if self._allowed.fullmatch(key) else None


_CLASSES: Final = {
    "file": f"{_PACKAGE}FileConfigProvider",
    "directory": f"{_PACKAGE}DirectoryConfigProvider",
    "env": f"{_PACKAGE}EnvVarConfigProvider",
}


class Resolved(NamedTuple):
    """Settings with resolved references, and the problems of others."""

    values: dict[str, str]
    problems: list[ConfigProblem]
    references: dict[str, str]
    """By the values that providers gave: their references, `${file:/path:key}`."""


class ConfigTransformer:
    """The providers of some settings, which resolve the references in these and in others."""

    def __init__(self, settings: Mapping[str, str], environ: Mapping[str, str]) -> None:
        """Make the providers that settings name; `problems` has those that cannot be made."""
        self.problems: list[ConfigProblem] = []
        self._providers: dict[str, Provider] = {}
        for name in (it.strip() for it in settings.get(PROVIDERS, "").split(",")):
            if not name:
                continue
            try:
                self._providers[name] = _made(name, settings, environ)
            except ProviderError as error:
                text = f"{PROVIDERS}: {name}: {error}"
                self.problems.append(ConfigProblem(PROVIDERS, name, text))

    def resolve(self, settings: Mapping[str, str]) -> Resolved:
        """Resolve the references of all values; unknown ones stay as they are, as in Kafka."""
        values, problems, references = dict(settings), [], {}

        def value_of(match: re.Match[str]) -> str:
            provider = self._providers.get(match[1])
            value = None if provider is None else provider.get(match[2] or "", match[3])
            if value is None:
                return match[0]
            references[value] = match[0]
            return value

        for setting, text in settings.items() if self._providers else ():
            if "${" not in text or setting.startswith(PROVIDERS):
                continue
            try:
                values[setting] = _VARIABLE.sub(value_of, text)
            except ValueError as error:  # also of a path that no system can have
                problems.append(ConfigProblem(setting, text, f"{setting}: {error}"))
        return Resolved(values, problems, references)


def resolve(given: Mapping[str, str], environ: Mapping[str, str]) -> Resolved:
    """Resolve settings by their own `config.providers`; without it all stay as they are."""
    transformer = ConfigTransformer(given, environ)
    resolved = transformer.resolve(given)
    return resolved._replace(problems=[*transformer.problems, *resolved.problems])


def _made(name: str, given: Mapping[str, str], environ: Mapping[str, str]) -> Provider:
    prefix = f"{PROVIDERS}.{name}."
    chosen = given.get(f"{prefix}class", "")
    parameters = dict(_below(f"{prefix}param.", given))
    makers: Mapping[str, Callable[[], Provider]] = {
        _CLASSES["file"]: lambda: FileProvider(parameters),
        _CLASSES["directory"]: lambda: DirectoryProvider(parameters),
        _CLASSES["env"]: lambda: EnvironmentProvider(parameters, environ),
    }
    if chosen not in makers:
        raise ProviderError(f"{prefix}class={chosen} is none of {', '.join(makers)}")
    return makers[chosen]()


def _below(prefix: str, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, text in given.items():
        if key.startswith(prefix):
            yield key.removeprefix(prefix), text


def _read(path: Path, failure: str) -> str:
    """Return a file's text; `failure` is Kafka's text for one that cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe may wait for ever
            raise OSError(errno.EINVAL, "not a regular file")
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ProviderError(f"{path} has more than {_MAX_BYTES} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise ProviderError(f"{failure}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProviderError(f"{path} is no text in UTF-8") from None
