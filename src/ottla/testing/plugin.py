"""The pytest plug-in: fixtures `kafka`, `kafka_module`, `kafka_session` and `kafka_cluster`.

Loaded in every pytest run once Ottla is installed, so it imports Ottla on the first use of a
fixture.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ottla.testing.cluster import Cluster, ForeignCluster
    from ottla.testing.kafka import Kafka, KafkaFactory

_OPENED = pytest.StashKey[list[tuple[str, Any]]]()
"""The fixtures that were opened for a test, module or session, by name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--ottla-url` and `--ottla-config`: run the same tests against another broker."""
    options = parser.getgroup("ottla")
    options.addoption(
        "--ottla-config",
        metavar="FILE",
        default=None,
        help="properties file of the clients of --ottla-url (security.protocol, sasl.…, ssl.…)",
    )
    options.addoption(
        "--ottla-url",
        metavar="HOST:PORT",
        default=None,
        help="run the tests against this broker; those that need one of their own are skipped",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Let the package be imported as it is: pytest would rewrite all of a plug-in's asserts.

    That costs every run that imports Ottla, and a node imports on its own thread: two threads that
    parse at once are an error in Python before 3.11.8. If pytest stores its marks
    differently, it continues to rewrite.
    """
    hook = getattr(early_config.pluginmanager, "rewrite_hook", None)
    marked = getattr(hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("ottla")
        getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; refuse an option that would have no effect."""
    if config.getoption("--ottla-config") and not config.getoption("--ottla-url"):
        raise pytest.UsageError("--ottla-config needs --ottla-url, the broker that it is for")
    config.addinivalue_line(
        "markers", "kafka(config=…, nodes=1): broker settings for the `kafka` fixture of this test"
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the broker that was given."""
    url = config.getoption("--ottla-url")
    return f"ottla: tests run against {url}" if url else None


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """Give the settings of the node that all tests share; override it in your own conftest.py."""
    return {}


@pytest.fixture(scope="session")
def _shared_kafka_cluster(
    request: pytest.FixtureRequest, kafka_config: Mapping[str, object]
) -> Iterator[Cluster | ForeignCluster]:
    from ottla.testing.client_settings import read_client_settings
    from ottla.testing.cluster import Cluster, ForeignCluster

    url, path = (request.config.getoption(name) for name in ("--ottla-url", "--ottla-config"))

    def make() -> Cluster | ForeignCluster:
        if not url:
            return Cluster(config=kafka_config)
        return ForeignCluster(url, read_client_settings(path) if path else None)

    with ExitStack() as opened:
        yield _entered(opened, make)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Give fresh names for topics and groups on a node that all tests of the process share.

    A test marked `@pytest.mark.kafka(config={...})` gets a node of its own with these settings.
    """
    yield from _opened(request)


@pytest.fixture(scope="module")
def kafka_module(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Give the same as `kafka` for fixtures of a module; a marked module gets its own node."""
    yield from _opened(request)


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Give the same as `kafka` for fixtures of the whole session."""
    yield from _opened(request)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaFactory]:
    """Give a function that starts a cluster of the test's own: `kafka_cluster(config={...})`."""
    from ottla.testing.cluster import Cluster
    from ottla.testing.kafka import Kafka

    _skip_with_url(request)
    with ExitStack() as opened:

        def start(
            *,
            nodes: int = 1,
            config: Mapping[str, object] | None = None,
            data_dir: str | None = None,
        ) -> Kafka:
            __tracebackhide__ = True
            cluster = Cluster(nodes=nodes, config=config, data_dir=data_dir)
            cluster.start()
            opened.callback(cluster.stop)
            fixture = Kafka(cluster)
            opened.callback(_close, fixture)
            _remember(request, fixture)
            return fixture

        yield start


def _opened(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    from ottla.testing.cluster import Cluster
    from ottla.testing.kafka import Kafka

    marker = request.node.get_closest_marker("kafka")
    options = {} if marker is None else _options(*marker.args, **marker.kwargs)
    cluster: Cluster | ForeignCluster
    with ExitStack() as opened:
        if options:
            _skip_with_url(request)
            cluster = _entered(opened, lambda: Cluster(**options))
        else:
            cluster = request.getfixturevalue("_shared_kafka_cluster")
            if not cluster.is_running:  # an earlier test killed it and failed
                cluster.start()
        fixture = Kafka(cluster, is_shared=not options)
        opened.callback(_close, fixture)
        if not options:
            opened.callback(fixture.remove_exact_topics)
        _remember(request, fixture)
        yield fixture


def _entered(
    opened: ExitStack, make: Callable[[], Cluster | ForeignCluster]
) -> Cluster | ForeignCluster:
    """Start a cluster; invalid settings fail the test without a traceback."""
    from ottla.config.problems import ConfigErrors
    from ottla.errors import OttlaError
    from ottla.testing.errors import ClusterError

    try:
        cluster = make()
        opened.enter_context(cluster)
    except (ClusterError, ConfigErrors, OttlaError) as error:
        text = str(error)
    else:
        return cluster
    pytest.fail(text, pytrace=False)


def _close(fixture: Kafka) -> None:
    """Close a fixture's clients; an expectation that nothing checked fails the test."""
    fixture.close()
    if fixture.unchecked:
        left = ", ".join(map(repr, fixture.unchecked))
        pytest.fail(
            f"{left} checks nothing: end it with .exactly(n) or .at_least(n)", pytrace=False
        )


def _options(
    config: Mapping[str, object] | None = None, nodes: int = 1, **unknown: object
) -> dict[str, Any]:
    """Return the arguments of the test's own cluster; empty if the shared one is used."""
    if unknown:
        wrong = ", ".join(unknown)
        pytest.fail(f"@pytest.mark.kafka takes config= and nodes=, not {wrong}", pytrace=False)
    return {"config": config, "nodes": nodes} if config or nodes != 1 else {}


def _skip_with_url(request: pytest.FixtureRequest) -> None:
    url = request.config.getoption("--ottla-url")
    if url:
        pytest.skip(f"needs a broker of its own, but --ottla-url names {url}")


def _remember(request: pytest.FixtureRequest, fixture: Kafka) -> None:
    name = request.fixturename or ""
    request.node.stash.setdefault(_OPENED, []).append((name, fixture))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add a section with topics, offsets and lag to the report of a test that failed."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    used = set(getattr(item, "fixturenames", ()))
    for node in item.listchain():
        for name, fixture in node.stash.get(_OPENED, []):
            if name in used:
                report.sections.append((name, fixture.describe()))
