"""Pods of the stand-in for Kubernetes: the container of each runs as a process on loopback.

What a kubelet does as far as Spark needs it: variables, volumes as directories, phases, the end.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.kubernetes import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.kubernetes import ApiServer, Object

POD_IP = "127.0.0.1"
GRACE_S = 60


class Pods:
    """The processes of the pods; `entry_point` is that of all images."""

    def __init__(self, server: ApiServer, directory: Path, entry_point: Path) -> None:
        self.store = server.store
        self.directory = directory
        self.entry_point = entry_point
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.threads: list[threading.Thread] = []
        self.made: list[Object] = []

    @contextmanager
    def running(self) -> Iterator[Pods]:
        """Run the pods that are made within the block; end them with it."""
        self.store.listeners.append(self._changed)
        try:
            yield self
        finally:
            for name in list(self.processes):
                self._end(name)
            for thread in self.threads:
                thread.join()

    def log(self, name: str) -> str:
        """Return the output of a pod."""
        return (self.directory / name / "log").read_text()

    def executors(self) -> list[Object]:
        """Return all pods of executors, in the order in which they were made."""
        return [one for one in self.made if one["spec"]["containers"][0]["args"] == ["executor"]]

    def _changed(self, change: str, found: Object) -> None:
        if found["kind"] == "Pod" and change == "ADDED":
            self.made.append(found)
            thread = threading.Thread(target=self._run, args=[found])
            self.threads.append(thread)
            thread.start()
        elif found["kind"] == "Pod" and change == "DELETED":
            self._end(found["metadata"]["name"])

    def _run(self, pod: Object) -> None:
        """Run the first container to its end, and report the phases."""
        name = pod["metadata"]["name"]
        place = Place(pod["metadata"]["namespace"], "pods", name)
        process = self._start(pod)
        self._report(place, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        code = process.wait()
        phase = "Failed" if code else "Succeeded"
        self._report(place, phase, {"terminated": {"exitCode": code}})

    def _report(self, place: Place, phase: str, state: Object) -> None:
        with self.store.lock:
            pod = self.store.objects.get(place)
            if pod is None:
                return
            ready = phase == "Running"
            container = pod["spec"]["containers"][0]["name"]
            status = {
                "phase": phase,
                "podIP": POD_IP,
                "conditions": [{"type": "Ready", "status": str(ready)}],
                "containerStatuses": [{"name": container, "ready": ready, "state": state}],
            }
            self.store.update(place, {"status": status})

    def _start(self, pod: Object) -> subprocess.Popen[bytes]:
        directory = self.directory / pod["metadata"]["name"]
        directory.mkdir()
        mounts = self._mounts(pod, directory)
        environment = _environment(pod, mounts)
        container = pod["spec"]["containers"][0]
        arguments = [_expanded(one, environment) for one in container.get("args", [])]
        arguments = [_moved(one, mounts) for one in arguments]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(self.entry_point), *arguments],
                stdout=log,
                stderr=log,
                env=_image_environment() | environment,
                cwd=directory,
                start_new_session=True,
            )
        self.processes[pod["metadata"]["name"]] = process
        return process

    def _mounts(self, pod: Object, directory: Path) -> dict[str, str]:
        """Return the directory in place of each path that the container mounts."""
        volumes = {one["name"]: one for one in pod["spec"].get("volumes", [])}
        found = {}
        for mount in pod["spec"]["containers"][0].get("volumeMounts", []):
            volume = volumes[mount["name"]]
            path = directory / mount["name"]
            if claim := volume.get("persistentVolumeClaim"):
                path = self.directory / claim["claimName"]  # one for all pods
            path.mkdir(exist_ok=True)
            if given := volume.get("configMap"):
                self._write(given["name"], pod["metadata"]["namespace"], path)
            found[mount["mountPath"]] = str(path)
        return found

    def _write(self, name: str, namespace: str, path: Path) -> None:
        data = self.store.objects[Place(namespace, "configmaps", name)].get("data", {})
        for file, text in data.items():
            (path / file).write_text(text)

    def _end(self, name: str) -> None:
        process = self.processes.pop(name, None)
        if process is None:
            return
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)


def _image_environment() -> dict[str, str]:
    """Return what an image has: Java, and a Python with this package."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],  # with the class archive of Spark's JVM
        "PYTHONPATH": os.pathsep.join(one for one in sys.path if one),
        "SPARK_LOCAL_IP": POD_IP,
    }


def _environment(pod: Object, mounts: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in pod["spec"]["containers"][0].get("env", []):
        value = one["value"] if "value" in one else _field(pod, one["valueFrom"])
        found[one["name"]] = _moved(_expanded(value or "", found), mounts)
    return found


def _field(pod: Object, source: Any) -> str:
    """Return what the downward API gives."""
    path = source["fieldRef"]["fieldPath"]
    if path == "status.podIP":
        return POD_IP
    return str(pod["metadata"][path.removeprefix("metadata.")])


def _expanded(text: str, environment: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text)


def _moved(text: str, mounts: dict[str, str]) -> str:
    """Return a text with the directories of the volumes, where it names a path in one."""
    for path, directory in mounts.items():
        text = re.sub(rf"(?<![\w/]){re.escape(path)}(?=/|$)", directory, text)
    return text
