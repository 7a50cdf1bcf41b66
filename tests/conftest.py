"""What all tests share: how hypothesis searches, that Ctrl-C can be sent, and one Spark.

No deadline, since a busy machine is no bug; in CI the examples are the same in every run. A shell
that starts the tests in the background has them ignore SIGINT, and every process that they start.
Of several processes one runs all tests of Spark, since a session takes both cores for 15 seconds.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.sampling import changed_since, last_full_run, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.config.argparsing import Parser
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

_SHARED: pytest.StashKey[Any] = pytest.StashKey()
gc.disable()  # until all tests are collected: what is imported stays
settings.register_profile(
    "ottla",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ottla")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: Parser) -> None:
    """Add the options that renew transcripts and choose modules."""
    parser.addoption("--rewrite", action="store_true", help="renew the transcripts' traces")
    parser.addoption("--sample", metavar="COMMIT", help="run what CI takes of all tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the modules that a run of CI at the commit of `--sample` takes."""
    commit = config.getoption("sample")
    if not commit:
        return
    conforming = {item.path for item in items if item.get_closest_marker("conformance")}
    chosen = sample(conforming, commit, changed_since(last_full_run()["commit"]))
    config.hook.pytest_deselected(items=[item for item in items if item.path not in chosen])
    items[:] = [item for item in items if item.path in chosen]


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether transcripts are renewed instead of compared."""
    return bool(request.config.getoption("--rewrite", default=False))


def _levels() -> dict[str, int]:
    loggers = logging.root.manager.loggerDict.items()
    return {
        name: logger.level
        for name, logger in loggers
        if name.startswith("ottla") and isinstance(logger, logging.Logger)
    }


@pytest.fixture(autouse=True)
def _restored_log_levels() -> Iterator[None]:
    """Undo what a test, or a request to BROKER_LOGGER in it, did to the process's loggers."""
    before = _levels()
    yield
    for name, level in _levels().items():
        if level != before.get(name, logging.NOTSET):
            logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


@pytest.fixture(scope="session")
def _shared_kafka_cluster(request: pytest.FixtureRequest, _shared_kafka_cluster: Any) -> Any:
    """Remember the node that the tests of a process share, unless it is of `--ottla-url`."""
    if not request.config.getoption("--ottla-url"):
        request.config.stash[_SHARED] = _shared_kafka_cluster
    return _shared_kafka_cluster


@pytest.fixture(scope="module", autouse=True)
def _stopped_shared_node(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stop the shared node at the end of a module; its next user starts it again.

    Tests replace methods of files, logs and controllers, which a node of other tests would call.
    """
    yield
    shared = request.config.stash.get(_SHARED, None)
    if shared and shared.is_running:
        shared.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the files of a whole run, each process from another one on.

    In a fresh tree pytest compiles every file of tests, 20 seconds in all. Processes that all begin
    with the first file would each do so; thus they find the greater part compiled by the others.
    """
    config = session.config
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    process, count = process_of(config)
    ignored = {Path(one).absolute() for one in config.getoption("ignore") or ()}
    files = [
        path
        for path in sorted(Path(__file__).parent.rglob("test_*.py"))
        if ignored.isdisjoint(path.parents)
    ]
    first = len(files) * process // count
    for path in (*files[first:], *files[:first]) if count > 1 else ():
        with suppress(Exception, pytest.skip.Exception):  # collection reports it
            import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


def process_of(config: pytest.Config) -> tuple[int, int]:
    """Return which process of xdist this is, and of how many."""
    given: dict[str, Any] = getattr(config, "workerinput", {"workerid": "gw0", "workercount": 1})
    return int(given["workerid"].removeprefix("gw")), given["workercount"]


LONG_FIRST = (
    "tests/conformance/mixed/",
    "tests/conformance/tools/test_on_ottla.py",
    "tests/conformance/differential/",
    "tests/coordinator/test_against_kafka.py",
    "tests/spark",
    "tests/testing/test_document.py",
    "tests/simulation/",
    "tests/testing/",
    "tests/cli/commands/test_quickstart.py",
    "tests/storage/cleaner/",
    "tests/server/",  # they wait most: others run meanwhile
)
"""Where files with few tests take long: begun last, one of them would run alone at the end."""


def _place(scope: str) -> int:
    """Return the place of a scope among those that begin first."""
    places = (place for place, prefix in enumerate(LONG_FIRST) if scope.startswith(prefix))
    return next(places, len(LONG_FIRST))


class SparkTogether(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Gives the tests of a file to one process, those of Spark all to the same; long ones first."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/spark" if nodeid.startswith("tests/spark/") else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=_place), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SparkTogether:
    """Choose how tests are shared out to processes."""
    return SparkTogether(config, log)


def pytest_collection_finish() -> None:
    """Collect garbage less often: the objects of 6,000 tests cost more time than they free."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
