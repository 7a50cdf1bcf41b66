"""Where a checkpoint's files are: Hadoop's settings, NameNodes, stores of S3; without Hadoop."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow.fs as pafs

from ottla.errors import KafkaError
from ottla.spark import webhdfs
from ottla.spark.checkpoint import Checkpoint
from ottla.spark.checkpoint_files import is_local, open_files, qualified
from ottla.spark.hadoop_settings import hadoop_settings, of_hadoop
from ottla.spark.options import write_options
from ottla.spark.webhdfs import name_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CORE = "<configuration><property><name>fs.defaultFS</name><value>hdfs://ns</value></property>"
HA = {
    "dfs.ha.namenodes.ns": "one, two",
    "dfs.namenode.http-address.ns.one": "first:9870",
    "dfs.namenode.http-address.ns.two": "second:9871",
}


def test_settings_come_from_files_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option has precedence; Spark passes its name in lower case."""
    (tmp_path / "core-site.xml").write_text(f"{CORE}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert hadoop_settings({"topic": "t"}) == {"fs.defaultfs": "hdfs://ns"}
    assert hadoop_settings({"fs.defaultFS": "file:///"}) == {"fs.defaultfs": "file:///"}
    given = {"spark.hadoop.fs.s3a.endpoint": "http://host", "spark.cores.max": "1"}
    assert of_hadoop(given) == {"fs.s3a.endpoint": "http://host"}


def test_the_sink_takes_settings_of_hadoop_as_options() -> None:
    """Its options hold secrets, which are in no text."""
    given = {"kafka.bootstrap.servers": "host:1", "topic": "t", "fs.s3a.secret.key": "a-secret"}
    options = write_options(given)
    assert options.hadoop == {"fs.s3a.secret.key": "a-secret"}
    assert "a-secret" not in repr(options)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("hdfs:///a/b", "hdfs://ns/a/b"),
        ("hdfs:/a/b", "hdfs://ns/a/b"),
        ("hdfs://other:1/a", "hdfs://other:1/a"),
        ("/a/b", "hdfs://ns/a/b"),
        ("file:/a", "file:/a"),
        ("s3a://bucket/a", "s3a://bucket/a"),
    ],
)
def test_the_default_file_system(location: str, expected: str) -> None:
    """Of Hadoop's settings; without them a path is of this machine."""
    settings = {"fs.defaultfs": "hdfs://ns/"}
    assert qualified(location, settings) == expected
    assert is_local(location, settings) == expected.startswith("file:")
    assert is_local("/a/b", {})


@pytest.mark.parametrize(
    ("default", "location", "expected"),
    [
        ("s3a://bucket", "/a/b", "s3a://bucket/a/b"),
        ("s3a://bucket/sub/", "/a/b", "s3a://bucket/a/b"),
        ("s3a://bucket", "a/b", "s3a://bucket/user/me/a/b"),
        ("s3a://bucket", "s3a:///a", "s3a://bucket/a"),
        ("s3a://bucket", "hdfs://ns/a", "hdfs://ns/a"),
        ("gs://bucket", "a/b", "gs://bucket/a/b"),
        ("hdfs://ns:8020", "a b/c:d", "hdfs://ns:8020/user/me/a b/c:d"),
        ("file:///", "/a/b", "/a/b"),
        ("file:///", "a/b", "a/b"),
    ],
)
def test_a_default_file_system_of_any_scheme(
    default: str, location: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark has the checkpoint there, and the sink has to look for it there as well."""
    monkeypatch.setenv("HADOOP_USER_NAME", "me")
    settings = {"fs.defaultfs": default}
    assert qualified(location, settings) == expected
    assert is_local(location, settings) == default.startswith("file:")


@pytest.mark.parametrize("location", ["hdfs:/a", "s3a:/a", "hdfs:///a"])
def test_a_uri_without_an_authority_is_not_local(location: str) -> None:
    """It is an error where no default file system completes it, not a directory `hdfs:`."""
    assert not is_local(location, {})
    with pytest.raises(ValueError, match=r"or fs\.defaultFS in HADOOP_CONF_DIR"):
        open_files(location, {})


def test_name_nodes() -> None:
    """One, or those of a nameservice, at the addresses of their web servers."""
    assert name_nodes("host:8020", {}) == [("http", "host", 9870)]
    any_host = {"dfs.namenode.http-address": "0.0.0.0:50070"}
    assert name_nodes("host:8020", any_host) == [("http", "host", 50070)]
    assert name_nodes("host", {"dfs.http.policy": "HTTPS_ONLY"}) == [("https", "host", 9871)]
    assert name_nodes("ns", HA) == [("http", "first", 9870), ("http", "second", 9871)]


@contextmanager
def name_node(
    answer: Any, status: int, location: str | None = None, asked: list[str] | None = None
) -> Iterator[str]:
    """Run a NameNode that has one answer; yield its address. `asked` gets the requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None:
                asked.append(self.path)
            self.send_response(status)
            if location is not None:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_PUT = do_GET  # noqa: N815 - the name of http.server

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def refusal(kind: str) -> dict[str, Any]:
    """Return an answer with an error."""
    return {"RemoteException": {"exception": kind, "message": "not here\n\tat java"}}


def test_the_active_name_node_is_asked() -> None:
    """The standby refuses, another one is away; an error of the active one is one line."""
    listing = {"FileStatuses": {"FileStatus": [{"pathSuffix": "7"}]}}
    with (
        name_node(refusal("StandbyException"), 403) as standby,
        name_node(listing, 200) as active,
        name_node(refusal("AccessControlException"), 403) as refusing,
    ):

        def files(*addresses: str) -> Any:
            keys = ("dfs.namenode.http-address.ns.one", "dfs.namenode.http-address.ns.two")
            settings = {**HA, **dict(zip(keys, addresses, strict=True))}
            return open_files("hdfs://ns/checkpoint", settings)[0]

        assert files(standby, active).names("/checkpoint/commits") == ["7"]
        assert files("127.0.0.1:1", active).names("/checkpoint/commits") == ["7"]
        with pytest.raises(OSError, match=r"AccessControlException: not here$"):
            files(standby, refusing).names("/checkpoint")
    words = r"NameNode of HDFS at http://127.0.0.1:\d+ \(dfs\.namenode\.http-address\): .*refused"
    with pytest.raises(OSError, match=words):
        files(standby, active).names("/checkpoint")


def test_the_name_node_that_was_active_last_is_asked_first() -> None:
    """By later readers too: one whose machine is away takes a minute to fail."""
    asked: list[str] = []
    one, two = refusal("StandbyException"), refusal("FileNotFoundException")
    with name_node(one, 403, asked=asked) as first, name_node(two, 404) as second:
        settings = {
            **HA,
            "dfs.namenode.http-address.ns.one": first,
            "dfs.namenode.http-address.ns.two": second,
        }
        for _ in range(3):
            assert open_files("hdfs://ns/a", settings)[0].read("/a") is None
        assert len(asked) == 1
        one.update(refusal("FileNotFoundException"))
        two.update(refusal("StandbyException"))
        for _ in range(3):
            assert open_files("hdfs://ns/a", settings)[0].read("/a") is None
        assert len(asked) == 4


@pytest.mark.parametrize(
    ("answer", "status", "location"),
    [
        ({}, 307, None),
        ({}, 307, "http://host:port/"),
        ({}, 307, "ftp://127.0.0.1:1/"),
        ({}, 301, "http://127.0.0.1:1/"),
        ("a page of a proxy", 200, None),
        ({"FileStatuses": None}, 200, None),
    ],
)
def test_a_bad_answer_is_an_error_of_files(answer: Any, status: int, location: str | None) -> None:
    """Not an empty directory, and none of Python's other errors."""
    with name_node(answer, status, location) as address:
        settings = {"dfs.namenode.http-address": address}
        with pytest.raises(OSError, match=r"HDFS|HTTP 30"):
            open_files("hdfs://host/checkpoint", settings)[0].names("/checkpoint")


def test_a_file_that_was_not_written_is_an_error() -> None:
    """HDFS names a file missing that another process deletes while it is written."""
    with name_node(refusal("FileNotFoundException"), 404) as address:
        files = open_files("hdfs://host/a", {"dfs.namenode.http-address": address})[0]
        assert files.read("/a/b") is None
        with pytest.raises(OSError, match="FileNotFoundException: not here"):
            files.write("/a/b", b"text")


def test_contents_that_nobody_took_are_an_error() -> None:
    """A NameNode redirects a write to a DataNode; a proxy may answer in its place."""
    with name_node({}, 200) as address:
        files = open_files("hdfs://host/a", {"dfs.namenode.http-address": address})[0]
        with pytest.raises(OSError, match="has not asked for the contents"):
            files.write("/a/b", b"text")


def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever answers there, this process keeps its memory."""
    monkeypatch.setattr(webhdfs, "ANSWER_MAX_BYTES", 100)
    with name_node({"a": "b" * 200}, 200) as address:
        files = open_files("hdfs://host/a", {"dfs.namenode.http-address": address})[0]
        with pytest.raises(OSError, match="more than 100 bytes"):
            files.read("/a/b")


@pytest.mark.parametrize("path", ["/a#b", "/a?b", "/a%20b", "/a b"])
def test_a_path_is_taken_literally(path: str) -> None:
    """As Hadoop does, whose paths are no URIs."""
    assert open_files(f"hdfs://host{path}/c", {})[1] == f"{path}/c"


def test_a_file_of_settings_that_is_no_xml_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the one line of a checkpoint that cannot be read."""
    (tmp_path / "core-site.xml").write_text("<configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(KafkaError, match=r"core-site\.xml: no element found"):
        Checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("location", "settings", "words"),
    [
        ("hdfs:///a", {}, "give hdfs://HOST:PORT"),
        ("hdfs://host/a", {"hadoop.security.authentication": "kerberos"}, "Kerberos"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    location: str, settings: dict[str, str], words: str
) -> None:
    """With what to do without."""
    with pytest.raises(KafkaError, match="exactlyOnce=false does without") as refused:
        Checkpoint(location, settings)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_store_of_s3_has_the_settings_of_s3a(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the bucket come first."""
    made: list[dict[str, Any]] = []

    def keep(**options: Any) -> pafs.LocalFileSystem:
        made.append(options)
        return pafs.LocalFileSystem()

    monkeypatch.setattr(pafs, "S3FileSystem", keep)
    settings = {
        "fs.s3a.endpoint": "host:9000",
        "fs.s3a.bucket.mine.endpoint": "http://other:9000/",
        "fs.s3a.access.key": "key",
        "fs.s3a.path.style.access": "true",
    }
    for bucket in ("mine", "yours"):
        assert open_files(f"s3a://{bucket}/a/b", settings)[1] == f"{bucket}/a/b"
    shared = {"access_key": "key", "force_virtual_addressing": False}
    assert made == [
        {**shared, "endpoint_override": "other:9000", "scheme": "http"},
        {**shared, "endpoint_override": "host:9000", "scheme": "https"},
    ]
