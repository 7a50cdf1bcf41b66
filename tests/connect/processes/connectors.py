"""Connectors that go wrong in a process of their own, in the way that `how` says."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING

from ottla.connect.connector import SourceConnector, SourceTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.connect.records import SourceRecord


def _is_inherited(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


class FaultyTask(SourceTask):
    """Goes wrong at its first poll."""

    def start(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._leak: list[bytearray] = []

    def poll(self) -> Sequence[SourceRecord] | None:  # noqa: C901, PLR0912 - a branch a fault
        match self._config.get("how"):
            case "raise much":
                raise RuntimeError("x" * (20 << 20))
            case "daemon":
                Popen(["yes"], start_new_session=True)
                os._exit(6)
            case "descriptors":
                kept = [it for it in range(3, 100) if _is_inherited(it)]
                raise RuntimeError(f"inherited: {kept}")
            case "raise":
                raise RuntimeError("no more")
            case "exit":
                os._exit(3)
            case "segfault":
                ctypes.string_at(0)
            case "leak":
                self._leak.append(bytearray(os.urandom(1 << 20) * 8))
            case "hang":
                Path(self._config["file"]).touch()
                time.sleep(3600)
            case "hold":
                Path(self._config["file"]).touch()
                ctypes.PyDLL(None).pause()  # in C, with the interpreter's lock
            case "print":
                print(self._config.get("text", "tea"), flush=True)
                print("milk", file=sys.stderr, flush=True)
            case "fork":
                process_id = os.fork()
                if process_id == 0:
                    time.sleep(3600)
                Path(self._config["file"]).write_text(str(process_id))
                os._exit(4)
            case "garbage":
                self.context._store._pipe._connection.sendall(b"\xff" * 8)  # type: ignore[attr-defined]
            case "ask":
                self._ask()
            case "put":
                for number in (1, 2):
                    self.context._store._pipe.send(  # type: ignore[attr-defined]
                        type="put_offsets", id=number, entries=[({"shelf": number}, {"at": 7})]
                    )
                os._exit(3)
        time.sleep(0.01)
        return None

    def _ask(self) -> None:
        partition = {"shelf": 1}
        Path(self._config["file"]).write_text(str(self.context.offset(partition)))
        try:
            self.context.offset({"shelf": b"1"})
        except Exception as error:
            name = type(error).__name__
        raise ValueError(f"{name} {self._config['file']}")


class Faulty(SourceConnector):
    """Has the tasks of `tasks.max`, all with its own settings."""

    runtime = "process"
    task_class = FaultyTask

    def start(self, config: Mapping[str, str]) -> None:
        self._config = config
        if config.get("how") == "start":
            os._exit(5)

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self._config] * tasks_max
