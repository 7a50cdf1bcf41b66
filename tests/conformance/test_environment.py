"""The rule for environment variables, against the program in Kafka's container image."""

from __future__ import annotations

import os
import subprocess
from random import Random
from typing import TYPE_CHECKING

import pytest

from ottla.config.environment import NOT_SETTINGS, read_environment
from ottla.config.properties import parse_properties

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conformance.kafka import Kafka

pytestmark = pytest.mark.conformance

WRAPPER = "kafka.docker.KafkaDockerWrapper"
# Scripts read these three; the image takes them for settings all the same.
SCRIPTS_ONLY = {"KAFKA_DEBUG", "KAFKA_HOME", "KAFKA_JMX_PORT"}


def test_the_image_reads_the_same_names(kafka: Kafka, tmp_path: Path) -> None:
    """Every variable becomes the setting that the image makes of it, ignored ones none."""
    rng = Random(43)
    words = ("log", "DIRS", "a", "b", "x1", "SSL")
    variables = {
        f"KAFKA_{''.join(rng.choice(words) + '_' * rng.randint(1, 4) for _ in range(4))}Z": str(n)
        for n in range(200)
    }
    variables |= dict.fromkeys(NOT_SETTINGS - SCRIPTS_ONLY, "ignored")
    for name in ("defaults", "mounted", "final"):
        (tmp_path / name).mkdir()
        for file in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
            (tmp_path / name / file).touch()
    flags = [part for flag, name in (("-D", "defaults"), ("-M", "mounted"), ("-F", "final"))
             for part in (flag, str(tmp_path / name))]  # fmt: skip
    command = kafka.command(WRAPPER, "setup", *flags)
    # It writes the file, then fails for want of a cluster id: nothing shall be formatted here.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    environ |= variables
    environ.pop("CLUSTER_ID", None)
    subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)
    theirs = parse_properties((tmp_path / "final" / "server.properties").read_text())
    ours = read_environment(
        variables, is_known=lambda _name: True, own=(), read_file=lambda _path: ""
    )
    assert {name: one.value for name, one in ours.settings.items()} == theirs
    assert len(theirs) > 150
