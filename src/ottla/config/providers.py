"""References to values in files and variables: `${file:/run/secrets/db:password}`.

`config.providers` names the providers, `config.providers.<name>.class` their classes. Only
what is given locally is resolved: a node's own file, variables and flags, and a client's settings.
A value that comes over the network (AlterConfigs) stays as it is (CVE-2024-31141).

Kafka: org.apache.kafka.common.config.ConfigTransformer and
config.provider.{FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider}.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.config.problems import ConfigProblem
from ottla.config.properties import parse_properties

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
        return None if found is None else parse_properties(_read(found)).get(key)


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
        return _read(file) if file.is_file() else None


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
            raise ProviderError(f"the environment has no path, as in {path}:{key}")
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


def resolve(given: Mapping[str, str], environ: Mapping[str, str]) -> Resolved:
    """Resolve the variables of all values; without `config.providers` all stay as they are."""
    values, problems = dict(given), []
    names = [name.strip() for name in given.get(PROVIDERS, "").split(",") if name.strip()]
    if not names:
        return Resolved(values, [])
    providers: dict[str, Provider] = {}
    for name in names:
        try:
            providers[name] = _made(name, given, environ)
        except ProviderError as error:
            problems.append(ConfigProblem(PROVIDERS, name, f"{PROVIDERS}: {name}: {error}"))
    for setting, text in given.items():
        if "${" not in text or setting.startswith(PROVIDERS):
            continue
        try:
            values[setting] = _VARIABLE.sub(lambda found: _value(found, providers), text)
        except ProviderError as error:
            problems.append(ConfigProblem(setting, text, f"{setting}: {error}"))
    return Resolved(values, problems)


def _value(found: re.Match[str], providers: Mapping[str, Provider]) -> str:
    provider = providers.get(found[1])
    if provider is None:
        return found[0]
    value = provider.get(found[2] or "", found[3])
    return found[0] if value is None else value


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


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ProviderError(f"{path} has more than {_MAX_BYTES} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise ProviderError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProviderError(f"{path} is no text in UTF-8") from None
