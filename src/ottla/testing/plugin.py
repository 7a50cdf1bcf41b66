"""The pytest plug-in: fixtures `kafka` and `kafka_cluster`.

Loaded in every pytest run once Ottla is installed, so it imports nothing of Ottla until a fixture
is asked for.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ottla.testing.kafka import Kafka

_CLUSTERS = pytest.StashKey[list[Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--ottla-url`: run the same tests against another broker."""
    parser.getgroup("ottla").addoption(
        "--ottla-url",
        metavar="HOST:PORT",
        default=None,
        help="run tests that use the `kafka` fixture against this broker",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Let the package be imported as it is: pytest would rewrite all of a plug-in's asserts.

    That costs every run that imports Ottla, and a node imports on its own thread: two threads that
    parse at once are an error in Python before 3.11.8. Where pytest keeps its marks otherwise, it
    goes on rewriting.
    """
    hook = getattr(early_config.pluginmanager, "rewrite_hook", None)
    marked = getattr(hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("ottla")
        getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", "kafka(config=…, nodes=1): broker settings for the `kafka` fixture of this test"
    )


@pytest.fixture(scope="session")
def _shared_kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    from ottla.testing.cluster import Cluster, ForeignCluster

    url = request.config.getoption("--ottla-url")
    cluster = ForeignCluster(url) if url else Cluster()
    with cluster:
        yield cluster


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Give fresh names for topics and groups on a node that all tests of the process share.

    A test marked `@pytest.mark.kafka(config={...})` gets a node of its own with these settings.
    """
    from ottla.testing.cluster import Cluster
    from ottla.testing.kafka import Kafka

    marker = request.node.get_closest_marker("kafka")
    options = {} if marker is None else _options(*marker.args, **marker.kwargs)
    with ExitStack() as opened:
        if options:
            cluster = opened.enter_context(Cluster(**options))
        else:
            cluster = request.getfixturevalue("_shared_kafka_cluster")
            if not cluster.is_running:  # an earlier test killed it and failed
                cluster.start()
        fixture = Kafka(cluster)
        opened.callback(fixture.close)
        request.node.stash.setdefault(_CLUSTERS, []).append(fixture)
        yield fixture


def _options(config: Mapping[str, str] | None = None, *, nodes: int = 1) -> dict[str, Any]:
    """Return what a cluster of the test's own is made with; empty when the shared one will do."""
    return {"config": config, "nodes": nodes} if config or nodes != 1 else {}


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Callable[..., Kafka]]:
    """Give a function that starts a cluster of the test's own: `kafka_cluster(config={...})`."""
    from ottla.testing.cluster import Cluster
    from ottla.testing.kafka import Kafka

    with ExitStack() as opened:

        def start(nodes: int = 1, **options: Any) -> Kafka:
            fixture = Kafka(opened.enter_context(Cluster(nodes=nodes, **options)))
            opened.callback(fixture.close)
            request.node.stash.setdefault(_CLUSTERS, []).append(fixture)
            return fixture

        yield start


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add a section with topics, offsets and lag to the report of a test that failed."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed:
        for fixture in item.stash.get(_CLUSTERS, []):
            report.sections.append(("kafka", fixture.describe()))
