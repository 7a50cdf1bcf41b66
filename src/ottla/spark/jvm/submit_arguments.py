"""The arguments of SparkSubmit: the master, and settings; secrets in a file of their own.

All users of a machine see the arguments of a process.

Kafka: none; Spark: SparkSubmitArguments, spark.redaction.regex.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SECRET: Final = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
"""The names of settings whose values Spark itself does not show."""
_ESCAPED: Final = re.compile(r"[\\\s:=#!]")
_CONTROLS: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def submit_arguments(master: str | None, config: Mapping[str, str], directory: Path) -> list[str]:
    """Return the arguments of SparkSubmit for a master and settings.

    It resolves spark.jars.packages; on a cluster it distributes the files and archives. Secrets are
    written to a file in the directory, which is of no use once SparkSubmit has read it.
    """
    arguments = [] if master is None else ["--master", master]
    secrets = {name: value for name, value in config.items() if _SECRET.search(name)}
    for name, value in config.items():
        if name not in secrets:
            arguments += ["--conf", f"{name}={value}"]
    if secrets:
        path = str(_written(directory, secrets))
        arguments += ["--properties-file", path, "--load-spark-defaults"]
    return arguments


def _written(directory: Path, settings: Mapping[str, str]) -> Path:
    path = directory / "secrets.properties"
    lines = (f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
    path.touch(0o600, exist_ok=False)
    path.write_text("".join(lines), "utf-8")
    return path


def _escaped(text: str) -> str:
    """Return text as java.util.Properties reads it back."""
    return _ESCAPED.sub(lambda found: _CONTROLS.get(found[0], f"\\{found[0]}"), text)
