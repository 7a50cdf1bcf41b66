"""The states of an application, its listener, pauses: without Spark, whose query is a stand-in."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import ApplicationState, StreamsBuilder, StreamsException
from ottla.streams.run.application import Streams
from ottla.streams.run.lifecycle import NEXT, Lifecycle

if TYPE_CHECKING:
    from pathlib import Path

CREATED, REBALANCING, RUNNING, STOPPING, STOPPED, FAILING, FAILED = ApplicationState


class Query:
    """A query that runs until it is stopped or fails."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.error: Exception | None = None

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's
        """Whether it runs."""
        return not self._ended.is_set()

    def exception(self) -> Exception | None:
        """Return the error it has ended with."""
        return self.error

    def stop(self) -> None:
        """End it."""
        self._ended.set()

    def fail(self) -> None:
        """End it with an error."""
        self.error = RuntimeError("failed")
        self._ended.set()

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - Spark's
        """Wait for its end."""
        ended = self._ended.wait(timeout)
        if ended and self.error is not None:
            raise self.error
        return ended


class Plan:
    """A plan without internal topics."""

    real_topics = ()


class Application(Streams):
    """An application whose queries are stand-ins."""

    def __init__(self, checkpoint: Path) -> None:
        build = StreamsBuilder()
        build.stream("in").to("out")
        super().__init__(build.build(), bootstrap_servers="none:1", checkpoint=checkpoint)
        self.queries: list[Query] = []
        self.error: Exception | None = None
        """Of the next start."""
        self._changes: list[tuple[ApplicationState, ApplicationState]] = []
        self._changed = threading.Condition()

    def listen(self) -> None:
        """Note all changes."""

        def note(new: ApplicationState, old: ApplicationState) -> None:
            with self._changed:
                self._changes.append((new, old))
                self._changed.notify_all()

        self.set_state_listener(note)

    def changes(self, count: int) -> list[ApplicationState]:
        """Return the new states, as soon as there are so many, and forget them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._changes) >= count, 10), self._changes
            found, self._changes = self._changes, []
        assert [old for _, old in found[1:]] == [new for new, _ in found[:-1]]
        return [new for new, _ in found]

    def _planned(self, *, available_now: bool) -> Any:
        if self.error is not None:
            raise self.error
        return Plan, None, Writer(self.queries, ends=available_now)


class Writer:
    """Starts queries."""

    def __init__(self, queries: list[Query], *, ends: bool) -> None:
        self._queries, self._ends = queries, ends

    def start(self) -> Query:
        """Start a query, which ends at once if it is to process what there is."""
        query = Query()
        self._queries.append(query)
        if self._ends:
            query.stop()
        return query


@pytest.fixture
def app(tmp_path: Path) -> Application:
    """Return an application with a listener."""
    made = Application(tmp_path)
    made.listen()
    return made


def test_a_run_goes_through_kafkas_states(app: Application) -> None:
    """It may be started again, unlike Kafka's; a second start is refused while it runs."""
    assert app.state is CREATED
    app.start()
    assert app.state is RUNNING
    for start in (app.start, app.process_available):
        with pytest.raises(StreamsException, match="already started: RUNNING"):
            start()
    with pytest.raises(StreamsException, match="Current state is: RUNNING"):
        app.set_state_listener(None)
    app.stop()
    assert app.changes(4) == [REBALANCING, RUNNING, STOPPING, STOPPED]
    app.process_available()
    assert app.changes(4) == [REBALANCING, RUNNING, STOPPING, STOPPED]
    app.stop()
    assert app.state is STOPPED


def test_an_application_that_never_started_is_stopped(app: Application) -> None:
    """As Kafka's."""
    app.stop()
    assert app.changes(2) == [STOPPING, STOPPED]


def test_an_error_is_noted_as_it_comes(app: Application) -> None:
    """Without a call of the program; the state stays after a stop."""
    app.start()
    app.queries[0].fail()
    assert app.changes(4) == [REBALANCING, RUNNING, FAILING, FAILED]
    with pytest.raises(RuntimeError, match="failed"):
        app.await_termination()
    app.stop()
    assert app.state is FAILED
    app.start()
    assert app.changes(2) == [REBALANCING, RUNNING]
    app.stop()


def test_without_a_listener_the_state_is_found_when_it_is_read(tmp_path: Path) -> None:
    """Of a query that failed, or that others have ended; a new start notices it, too."""
    app = Application(tmp_path)
    app.start()
    app.queries[0].fail()
    assert app.state is FAILED
    app.start()
    app.queries[1].stop()
    assert app.state is STOPPED
    app.start()
    app.queries[2].fail()
    app.start()
    assert app.state is RUNNING


def test_a_start_that_fails_is_an_error(app: Application) -> None:
    """A missing topic, for instance."""
    app.error = StreamsException("no topic")
    with pytest.raises(StreamsException, match="no topic"):
        app.start()
    assert app.changes(3) == [REBALANCING, FAILING, FAILED]


def test_a_pause_ends_the_query_and_is_no_end(app: Application) -> None:
    """Who waits for the end goes on waiting; the state is RUNNING, as in Kafka."""
    app.start()
    ended: list[bool] = []
    waiting = threading.Thread(target=lambda: ended.append(app.await_termination()))
    waiting.start()
    app.pause()
    assert (app.is_paused, app.state, app.queries[0].isActive) == (True, RUNNING, False)
    assert not app.await_termination(0.05)
    with pytest.raises(StreamsException, match="already started"):
        app.start()
    app.resume()
    app.resume()
    assert (app.is_paused, app.state, len(app.queries)) == (False, RUNNING, 2)
    assert not app.await_termination(0.05)
    assert app.changes(4) == [REBALANCING, RUNNING, REBALANCING, RUNNING]
    app.stop()
    waiting.join(60)
    assert ended == [True]


def test_an_application_may_be_paused_before_its_start_and_stopped_in_a_pause(
    app: Application,
) -> None:
    """Its topics are checked at the start."""
    app.pause()
    with pytest.raises(StreamsException, match="is paused"):
        app.process_available()
    app.start()
    assert (app.state, app.queries) == (RUNNING, [])
    waiting = threading.Thread(target=app.await_termination)
    waiting.start()
    app.stop()
    waiting.join(60)
    assert not waiting.is_alive()
    assert app.state is STOPPED
    app.resume()
    assert (app.state, app.is_paused, app.queries) == (STOPPED, False, [])


def test_a_resume_that_fails_ends_the_application(app: Application) -> None:
    """Its error is that of the call, which may be repeated by a start."""
    app.start()
    app.pause()
    app.error = StreamsException("no topic")
    with pytest.raises(StreamsException, match="no topic"):
        app.resume()
    assert (app.state, app.is_paused) == (FAILED, False)


def test_changes_that_do_not_follow_do_nothing() -> None:
    """An end after an error, an error after the end."""
    life = Lifecycle()
    life.ended()
    life.failed()
    life.running()
    assert life.state is STOPPED
    assert NEXT.keys() == set(ApplicationState)
