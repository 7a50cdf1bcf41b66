"""The herder as a table: requests and records to answers and effects."""

from __future__ import annotations

import pytest

from ottla.connect.errors import AlreadyExistsException, BadRequestException, NotFoundException
from ottla.connect.runtime.herder import Herder, StartTask, StopTasks, WriteConfig
from ottla.connect.runtime.state import ConfigState, ConnectorTaskId, RunState, TargetState

CONFIG = {"name": "s1", "connector.class": "FileStreamSource"}


def settle(herder: Herder) -> list[str]:
    """Carry the effects out as a worker alone does; return their names."""
    names = []
    while effects := herder.take_effects():
        for effect in effects:
            names.append(type(effect).__name__)
            if isinstance(effect, WriteConfig):
                herder.read_config(effect.key, effect.value)
    return names


def running() -> Herder:
    """Return a herder with a connector of two tasks that run."""
    herder = Herder("w:1", lambda _: "source")
    herder.put("s1", CONFIG, may_replace=False)
    settle(herder)
    herder.connector_report("s1", RunState.RUNNING, version="4.3.0")
    herder.task_configs_made("s1", [{"a": "0"}, {"a": "1"}])
    settle(herder)
    for number in range(2):
        herder.task_report(ConnectorTaskId("s1", number), RunState.RUNNING, version="4.3.0")
    settle(herder)
    return herder


def test_a_new_connector_starts_and_its_tasks_follow() -> None:
    """The answer has no tasks yet; settings of tasks count from their commit."""
    herder = Herder("w:1", lambda _: "source")
    is_new, info = herder.put("s1", CONFIG, may_replace=False)
    assert (is_new, info["tasks"], info["type"]) == (True, [], "source")
    assert settle(herder) == ["WriteConfig", "StopConnector", "StartConnector"]
    herder.connector_report("s1", RunState.RUNNING)
    assert settle(herder) == ["WriteStatus", "MakeTaskConfigs"]
    herder.task_configs_made("s1", [{"a": "0"}])
    assert settle(herder) == ["WriteConfig", "WriteConfig", "StartTask"]
    assert herder.info("s1")["tasks"] == [{"connector": "s1", "task": 0}]
    herder.task_configs_made("s1", [{"a": "0"}])
    assert settle(herder) == []  # nothing new
    with pytest.raises(AlreadyExistsException, match=r"^Connector s1 already exists$"):
        herder.put("s1", CONFIG, may_replace=False)


def test_statuses() -> None:
    """As the REST API shows them."""
    herder = running()
    shown = {"state": "RUNNING", "worker_id": "w:1", "version": "4.3.0"}
    assert herder.status("s1") == {
        "name": "s1",
        "connector": shown,
        "tasks": [{"id": 0, **shown}, {"id": 1, **shown}],
        "type": "source",
    }
    herder.task_report(ConnectorTaskId("s1", 1), RunState.FAILED, trace="boom")
    assert herder.task_status(ConnectorTaskId("s1", 1))["trace"] == "boom"
    with pytest.raises(NotFoundException, match=r"^No status found for task s1-7$"):
        herder.task_status(ConnectorTaskId("s1", 7))
    with pytest.raises(NotFoundException, match=r"^No status found for connector nope$"):
        herder.status("nope")


def test_only_what_failed_restarts() -> None:
    """RESTARTING shows at what restarts."""
    herder = running()
    herder.task_report(ConnectorTaskId("s1", 1), RunState.FAILED, trace="boom")
    settle(herder)
    answer = herder.restart_with_tasks("s1", include_tasks=True, only_failed=True)
    assert answer["connector"]["state"] == "RUNNING"
    assert [it["state"] for it in answer["tasks"]] == ["RUNNING", "RESTARTING"]
    effects = herder.take_effects()
    assert [it.tasks for it in effects if isinstance(it, StopTasks)] == [
        (ConnectorTaskId("s1", 1),)
    ]
    assert [it.task for it in effects if isinstance(it, StartTask)] == [ConnectorTaskId("s1", 1)]
    with pytest.raises(NotFoundException, match=r"^Unknown task: s1-9$"):
        herder.restart_task(ConnectorTaskId("s1", 9))
    with pytest.raises(NotFoundException, match=r"^Unknown connector: nope$"):
        herder.restart("nope")


def test_a_stopped_connector_has_no_tasks_and_its_offsets_may_change() -> None:
    """The commit of no tasks comes before the target state; old workers read PAUSED."""
    herder = running()
    with pytest.raises(BadRequestException, match=r"^Connectors must be in the STOPPED state"):
        herder.require_stopped("s1")
    herder.set_target("s1", TargetState.STOPPED)
    writes = [it for it in herder.take_effects() if isinstance(it, WriteConfig)]
    assert [(it.key, it.value) for it in writes] == [
        ("commit-s1", {"tasks": 0}),
        ("target-state-s1", {"state": "PAUSED", "state.v2": "STOPPED"}),
    ]
    for write in writes:
        herder.read_config(write.key, write.value)
    assert "StopTasks" in settle(herder)
    assert herder.require_stopped("s1") == CONFIG
    assert herder.statuses.tasks == {}


def test_a_deleted_connector_leaves_nothing() -> None:
    """Its tasks stop, its statuses go, and a late report is nothing."""
    herder = running()
    herder.delete("s1")
    names = settle(herder)
    assert names.count("WriteStatus") == 3
    assert {"StopTasks", "StopConnector"} <= set(names)
    herder.connector_report("s1", RunState.RUNNING)
    herder.task_report(ConnectorTaskId("s1", 0), RunState.RUNNING)
    assert settle(herder) == []
    with pytest.raises(NotFoundException, match=r"^Connector s1 not found$"):
        herder.config("s1")


def test_a_commit_that_lacks_tasks_marks_the_connector() -> None:
    """The old settings stay in force."""
    state = ConfigState()
    state.apply("connector-a", {"properties": CONFIG})
    state.apply("task-a-0", {"properties": {"x": "1"}})
    assert state.apply("commit-a", {"tasks": 2}) is None
    assert (state.inconsistent, state.tasks) == ({"a"}, {})
    state.apply("task-a-0", {"properties": {"x": "1"}})
    state.apply("commit-a", {"tasks": 1})
    assert (state.inconsistent, state.tasks) == (set(), {"a": [{"x": "1"}]})
    for key, value in (("commit-a", {"tasks": "x"}), ("target-state-a", {}), ("huh", None)):
        assert state.apply(key, value) is None


def test_settings_that_were_made_before_a_stop_are_not_those_of_a_stopped_connector() -> None:
    """Its offsets could not be altered, as it would have tasks again."""
    herder = running()
    herder.set_target("s1", TargetState.STOPPED)
    settle(herder)
    herder.task_configs_made("s1", [{"a": "2"}])
    assert settle(herder) == []
    assert herder.require_stopped("s1") == CONFIG
