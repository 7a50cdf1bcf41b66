"""Secrets in options of Spark, and everywhere that they must not appear.

Frames and queries read, write, fail and explain with `kafka.sasl.*` and `kafka.ssl.*`: plans,
progress, event log, Spark's log, checkpoints, errors and command lines are searched.
"""

from __future__ import annotations

import json
import secrets
import traceback
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ottla import Admin
from ottla.testing.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

pytestmark = [pytest.mark.conformance, pytest.mark.spark, pytest.mark.timeout(900)]
NAMES = ("source", "sink", "wrong", "keystore", "key", "trust")
JAAS = 'a.Plain required username="{}" password="{}";'
LIMIT_S = 300


@pytest.fixture
def canaries() -> dict[str, str]:
    """Draw the secrets."""
    return {name: f"canary{secrets.token_hex(12)}" for name in NAMES}


@pytest.fixture
def secured(canaries: dict[str, str]) -> Iterator[Cluster]:
    """Run a node with a user for what reads and one for what writes."""
    listed = " ".join(f'user_{name}="{canaries[name]}"' for name in ("source", "sink"))
    config = {
        "listeners": "LOGIN://127.0.0.1:0,INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": (
            "LOGIN:SASL_PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"a.Plain required {listed};",
    }
    with Cluster(config=config) as cluster:
        yield cluster


class Program:
    """What a user does, and what is kept of it."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, found: dict[str, str], kept: Path
    ) -> None:
        self.spark, self._secrets, self.kept = spark, found, kept
        self._common = {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.ssl.keystore.password": found["keystore"],
            "kafka.ssl.key.password": found["key"],
            "kafka.ssl.truststore.password": found["trust"],
        }

    def by_password(self, user: str, password: str | None = None) -> dict[str, str]:
        """Return options with name and password."""
        secret = self._secrets[password or user]
        return {**self._common, "kafka.sasl.username": user, "kafka.sasl.password": secret}

    def by_jaas(self, user: str, password: str | None = None) -> dict[str, str]:
        """Return options with a JAAS text."""
        secret = self._secrets[password or user]
        return {**self._common, "kafka.sasl.jaas.config": JAAS.format(user, secret)}

    def frames(self) -> None:
        """Write a frame, and read it as one and as a view of Spark's catalog."""
        rows = self.spark.range(3).selectExpr("CAST(id AS STRING) AS value")
        writer = rows.write.format("ottla").options(**self.by_jaas("sink"))
        writer.option("topic", "secret-in").mode("append").save()
        read = self.spark.read.format("ottla").options(**self.by_password("source"))
        self._explain(read.option("subscribe", "secret-in").load())
        options = {**self.by_jaas("source"), "subscribe": "secret-in"}
        listed = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW secret USING ottla OPTIONS ({listed})")
        self._explain(self.spark.table("secret"))

    def _explain(self, frame: DataFrame) -> None:
        with (self.kept / "plans").open("a") as plans, redirect_stdout(plans):
            frame.explain(extended=True)
            frame.explain("formatted")
            print(frame, frame.collect()[:1])
            print(frame._jdf.queryExecution().toString())

    def query(self) -> None:
        """Copy a topic."""
        read = self.spark.readStream.format("ottla").options(**self.by_jaas("source"))
        rows = read.option("subscribe", "secret-in").option("startingOffsets", "earliest").load()
        writer = rows.selectExpr("value").writeStream.format("ottla")
        writer = writer.options(**self.by_password("sink")).option("topic", "secret-out")
        writer = writer.option("checkpointLocation", str(self.kept / "checkpoints"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(LIMIT_S)
        with (self.kept / "plans").open("a") as plans, redirect_stdout(plans):
            query.explain(extended=True)
        shown = [json.loads(one.json) for one in query.recentProgress]
        (self.kept / "progress").write_text(json.dumps([shown, query.status, str(query)]))

    def failures(self) -> None:
        """Log in wrongly: by password, by a JAAS text, by one that is none, by an unknown name."""
        jaas = self.by_jaas("source", "wrong")
        text = jaas["kafka.sasl.jaas.config"]
        broken = {**jaas, "kafka.sasl.jaas.config": self._secrets["wrong"]}
        for options in (self.by_password("source", "wrong"), broken, {**jaas, "kafka.jaas": text}):
            read = self.spark.read.format("ottla").options(**options)
            self._fails(partial(self._collect, read))
        stream = self.spark.readStream.format("ottla").options(**jaas)
        self._fails(lambda: self._wait(stream.option("subscribe", "secret-in").load()))

    @staticmethod
    def _collect(read: DataFrameReader) -> None:
        read.option("subscribe", "secret-in").load().collect()

    @staticmethod
    def _wait(rows: DataFrame) -> None:
        rows.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(LIMIT_S)

    def _fails(self, call: Callable[[], Any]) -> None:
        with (self.kept / "errors").open("a") as file:
            try:
                call()
            except Exception as error:
                file.write(f"{error!r}\n{''.join(traceback.format_exception(error))}\n")
            else:
                raise AssertionError("a wrong login succeeded")

    def processes(self) -> None:
        """Keep the command lines and environments of all processes."""
        me = psutil.Process()
        for one in (me, *me.children(recursive=True)):
            with (self.kept / "processes").open("a") as file:
                file.write(" ".join(one.cmdline()) + "\n")


def test_no_secret_of_an_option_is_seen(
    spark: SparkSession, spark_files: Path, secured: Cluster, canaries: dict[str, str]
) -> None:
    """Six canaries in plans, progress, logs, event log, checkpoints, command lines, errors."""
    host, port = secured.run(lambda node: node.addresses["INSIDE"])
    with Admin(bootstrap_servers=f"{host}:{port}") as admin:
        for topic in ("secret-in", "secret-out"):
            admin.create_topic(topic)
    kept = spark_files / "kept"
    kept.mkdir()
    program = Program(spark, secured.bootstrap, canaries, kept)
    spark.sparkContext.setLogLevel("INFO")
    try:
        for part in (program.frames, program.query, program.failures, program.processes):
            part()
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    found = {
        (name, str(path.relative_to(spark_files)))
        for path in spark_files.rglob("*")
        if path.is_file()
        for text in [path.read_bytes()]
        for name, value in canaries.items()
        if value.encode() in text
    }
    assert found == set()
    # each part did what could show them
    assert {path.name for path in kept.iterdir()} == {
        *("plans", "progress", "errors", "processes", "checkpoints")
    }
    assert any(path.is_file() for path in (spark_files / "events").rglob("*"))
    assert b"INFO" in (spark_files / "spark.log").read_bytes()
