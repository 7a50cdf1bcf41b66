"""Where tools connect without --bootstrap-server: a profile, or OTTLA_BOOTSTRAP_SERVERS.

Kafka: none.

Profiles are tables of a TOML file in the user's configuration directory:

    default = "local"
    [profiles.production]
    bootstrap_servers = "kafka1:9092,kafka2:9092"
    command_config = "production.properties"    # relative to this file
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ottla.config.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVERS_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVERS"
PROFILE_VARIABLE: Final = "OTTLA_PROFILE"
FILE_VARIABLE: Final = "OTTLA_PROFILES_FILE"
FLAG: Final = "--profile"
_KEYS: Final = ("bootstrap_servers", "command_config")
_SUBCOMMANDS: Final = (
    "cluster-id",
    "health",
    "list-endpoints",
    "unregister",
    "run",
    "sync",
    "plan",
)
"""Subcommands that have the connection's flags themselves."""
# Flags of addresses, and flags of client settings.
_PLACES: Final = ("--bootstrap-server", "--bootstrap-controller", "-b", "-C", "--broker-list")
_CONFIGS: Final = ("--command-config", "--producer.config", "--consumer.config", "-c")


class Profile(NamedTuple):
    """Addresses, and optionally the client's properties file."""

    bootstrap_servers: str
    command_config: str | None = None


def take_profile(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the value of --profile, wherever it stands, and the other arguments."""
    left = list(arguments)
    for position, word in enumerate(left):
        if word == "--":
            break
        if word == FLAG:
            if position + 1 == len(left):
                raise click.UsageError(f"Option '{FLAG}' requires an argument.")
            name = left[position + 1]
            del left[position : position + 2]
            return name, left
        if word.startswith(f"{FLAG}="):
            del left[position]
            return word.partition("=")[2], left
    return None, left


def chosen_profile(flag: str | None, environ: Mapping[str, str]) -> Profile | None:
    """Return where to connect by default; ClickException names an unknown profile.

    The flag takes precedence over OTTLA_BOOTSTRAP_SERVERS, that over OTTLA_PROFILE, and that over
    the default of the file.
    """
    servers = environ.get(SERVERS_VARIABLE)
    if flag is None and servers:
        return Profile(servers)
    path = profiles_path(environ)
    name = flag or environ.get(PROFILE_VARIABLE)
    if name is None and not _exists(path):
        return None
    content = _read(path)
    name = name or content.get("default")
    return None if name is None else _profile(path, content, name)


def profiles_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's file."""
    return Path(environ.get(FILE_VARIABLE) or Path(click.get_app_dir("ottla")) / "profiles.toml")


def _exists(path: Path) -> bool:
    """Whether there is a file; a directory that cannot be read has none."""
    try:
        return path.exists()
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.ClickException(f"cannot read {path}: {error}") from error


def _profile(path: Path, content: dict[str, Any], name: object) -> Profile:
    known = content.get("profiles", {})
    found = known.get(name) if isinstance(known, dict) else None
    if not isinstance(found, dict):
        meant = nearest(str(name), known) if isinstance(known, dict) else None
        proposal = f"did you mean {meant}?" if meant else f"add a table [profiles.{name}]"
        raise click.ClickException(f"no profile {name} in {path}; {proposal}")
    for key, value in found.items():
        if key not in _KEYS:
            raise click.ClickException(
                f"{path}: profile {name} has the unknown key {key}; keys are {', '.join(_KEYS)}"
            )
        if not isinstance(value, str):
            raise click.ClickException(f"{path}: {key} of profile {name} must be a text")
    if "bootstrap_servers" not in found:
        raise click.ClickException(f"{path}: profile {name} has no bootstrap_servers")
    config = found.get("command_config")
    if config is not None:
        config = os.fspath(path.parent / Path(config).expanduser())
    return Profile(found["bootstrap_servers"], config)


def defaults(
    profile: Profile, arguments: Sequence[str], commands: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return click's default_map: addresses and client settings that no argument gives."""
    flags = {word.partition("=")[0] for word in arguments if word.startswith("-")}
    values: dict[str, str] = {}
    if flags.isdisjoint(_PLACES) and not any(
        "bootstrap.servers=" in argument for argument in arguments
    ):
        values["bootstrap_server"] = profile.bootstrap_servers
    is_file_of_node = "add-controller" in arguments
    if profile.command_config and flags.isdisjoint(_CONFIGS) and not is_file_of_node:
        values["command_config"] = profile.command_config
    of_command: dict[str, Any] = {**values, **dict.fromkeys(_SUBCOMMANDS, values)}
    found = dict.fromkeys(commands, of_command)
    if "bootstrap_server" in values:  # Kafka's tool has an older name for the same
        found["replica-verification"] = {"broker_list": profile.bootstrap_servers}
    return found
