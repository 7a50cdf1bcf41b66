"""The topology of a program of `ottla.streams`, which a tool runs to have it.

Kafka: no counterpart; Kafka Streams applications are programs.
"""

from __future__ import annotations

import runpy
import traceback
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.streams.topology.topology import Topology


def load_topology(program: Path) -> Topology:
    """Return the topology that a program defines; ClickException when it fails or has none."""
    from ottla.streams import StreamsBuilder, Topology, TopologyException

    names = _run_program(program)
    found = names.get("topology", names.get("builder"))
    if isinstance(found, StreamsBuilder):
        try:
            found = found.build()
        except TopologyException as error:
            raise click.ClickException(f"{program}: {error}") from error
    if not isinstance(found, Topology):
        raise click.UsageError(
            f"{program} defines neither `topology` nor `builder`: call its StreamsBuilder `builder`"
        )
    return found


def _run_program(program: Path) -> dict[str, Any]:
    """Return a program's names; an error of it becomes one line, with the line of the program."""
    try:
        return runpy.run_path(str(program))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(program)]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        hint = "; install it, or give it by --py-files"
        raise click.ClickException(
            f"{program}, line {line}: {type(error).__name__}: {getattr(error, 'msg', error)}"
            f"{hint if isinstance(error, ModuleNotFoundError) else ''}"
        ) from error
