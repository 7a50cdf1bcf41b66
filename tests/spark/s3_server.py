"""A server of S3 on loopback: moto, in memory, in packages of its own.

Its dependencies contradict those of this project's tests, so it is installed apart on first use.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.maven import fetched
from tests.ports import free_ports
from tests.spark.spark_services import is_listening
from tests.waits import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")
POM = Path(__file__).parent / "hadoop_aws" / "pom.xml"
HOST = "127.0.0.1"
BUCKET = "checkpoints"
KEYS = {"access.key": "an-access-key", "secret.key": "a-secret-key"}


def packages() -> Path:
    """Return the directory of the server's packages, fetched on first use."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = base / "ottla" / "moto-5.2.5"
    if not found.is_dir():
        found.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=found.parent))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(made)]
        subprocess.run([*command, *PACKAGES], check=True, timeout=600)
        try:
            made.rename(found)
        except OSError:  # another process was faster
            shutil.rmtree(made)
    return found


@contextmanager
def running_s3(directory: Path) -> Iterator[str]:
    """Run a server with an empty bucket until the end of the block; yield its address."""
    (port,) = free_ports(1)
    address = f"http://{HOST}:{port}"
    environment = {**os.environ, "PYTHONPATH": str(packages())}
    with (directory / "s3.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_for(lambda: is_listening(port))
        made = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
        urllib.request.urlopen(made).close()
        yield address
    finally:
        process.terminate()
        process.wait(60)


def s3a_options(address: str) -> list[str]:
    """Return the options of `ottla streams run` with S3A's jars and settings."""
    jars = sorted(str(one) for one in fetched("hadoop-aws-3.5.0", POM).iterdir())
    settings = {
        "spark.jars": ",".join(jars),
        "spark.hadoop.fs.s3a.endpoint": address,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        # moto's answer 100 (Continue) ends the asynchronous client's request
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        **{f"spark.hadoop.fs.s3a.{name}": one for name, one in KEYS.items()},
    }
    return [word for item in settings.items() for word in ("--conf", "=".join(item))]
