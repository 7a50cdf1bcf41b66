"""The assignor `sticky` of streams groups.

Active tasks go first to the member that had them active, then to one that had them as standby, each
while the member has less than its share; the rest to the least loaded processes. Standby tasks
of a task go to other processes than the active one. Which of several equally loaded processes is
taken depends on the order of Java's hash maps and priority queues, which is followed here.

Kafka: org.apache.kafka.coordinator.group.streams.assignor.{StickyTaskAssignor, ProcessState,
GroupSpec, AssignmentMemberSpec, TopologyDescriber} (KIP-1071); java.util.PriorityQueue, whose order
among equal entries decides who gets a task.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ottla.coordinator.group.slices import SLICE
from ottla.coordinator.group.streams.group import Tasks, tasks_of
from ottla.coordinator.runtime.java_hash import in_hash_map_order
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.coordinator.group.slices import Steps
    from ottla.coordinator.group.streams.group import Task, TaskMap

T = TypeVar("T")
_log = logging.getLogger("ottla.groups")


class MemberSpec(NamedTuple):
    """A member: its process, and its tasks in the last target assignment."""

    process_id: str
    tasks: Tasks


class SubtopologySpec(NamedTuple):
    """A subtopology: how many tasks, and whether they have state."""

    task_count: int
    is_stateful: bool


class StreamsAssignorInput(NamedTuple):
    """Members by id, subtopologies by id in rising order, and the standby tasks of each task."""

    members: Mapping[str, MemberSpec]
    subtopologies: Mapping[str, SubtopologySpec]
    standby_replicas: int


class _JavaQueue(Generic[T]):
    """A binary heap that breaks ties as java.util.PriorityQueue does.

    An item's weight is taken when the item is added: it must not change until `poll` returns it.
    """

    def __init__(self, weight: Callable[[T], float], items: Iterable[T]) -> None:
        self._weight = weight
        self._heap: list[tuple[float, T]] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: T) -> None:
        """Add an item below those of equal weight on its way up."""
        heap, index, weight = self._heap, len(self._heap), self._weight(item)
        entry = (weight, item)
        heap.append(entry)
        while index > 0:
            parent = (index - 1) // 2
            if weight >= heap[parent][0]:
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = entry

    def poll(self) -> T:
        """Remove and return the first item."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            self._sift_down(last)
        return first[1]

    def _sift_down(self, entry: tuple[float, T]) -> None:
        heap, index, weight = self._heap, 0, entry[0]
        size = len(heap)
        while (child := 2 * index + 1) < size:
            right = child + 1
            if right < size and heap[child][0] > heap[right][0]:
                child = right
            if weight <= heap[child][0]:
                break
            heap[index] = heap[child]
            index = child
        heap[index] = entry


@dataclass(slots=True)
class _Entry:
    """A member in the queue of its process."""

    member_id: str
    count: int


class _ProcessLoad:
    """The members of a process and the tasks assigned to them so far."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Tasks by member."""
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        self._tasks: set[Task] = set()
        self._assigned = 0
        self._by_load: _JavaQueue[_Entry] | None = None

    @property
    def load(self) -> float:
        """Tasks for each member."""
        return self._assigned / len(self.counts)

    def has_task(self, task: Task) -> bool:
        """Whether a member of the process has the task, of any kind."""
        return task in self._tasks

    def add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        """Assign a task to a member; return how many it has then."""
        self._by_load = None
        return self._add(member_id, task, is_active=is_active)

    def _add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        self._assigned += 1
        self._tasks.add(task)
        kind = self.active if is_active else self.standby
        kind.setdefault(member_id, []).append(task)
        self.counts[member_id] += 1
        return self.counts[member_id]

    def add_to_least_loaded(self, task: Task, *, is_active: bool) -> int:
        """Assign a task to the member with the fewest; return how many it has then."""
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, is_active=is_active)
        if self._by_load is None:
            ordered = in_hash_map_order(self.counts)
            entries = [_Entry(member_id, self.counts[member_id]) for member_id in ordered]
            self._by_load = _JavaQueue(attrgetter("count"), entries)
        entry = self._by_load.poll()
        entry.count = self._add(entry.member_id, task, is_active=is_active)
        self._by_load.add(entry)
        return entry.count


class _Quota:
    """Tasks that each member should have; rises for the others as members are full."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.limit = self._share()

    def _share(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def count(self, tasks: int) -> None:
        """Take a member out that has reached the limit."""
        if tasks == self.limit:
            self._members -= 1
            self._tasks -= tasks
            self.limit = self._share()


def assign(group: StreamsAssignorInput) -> Steps[dict[str, Tasks]]:
    """Return the tasks of each member."""
    return _Assignment(group).run()


class _Assignment:
    """One run of the assignor."""

    def __init__(self, group: StreamsAssignorInput) -> None:
        self._group = group
        self._ordered = in_hash_map_order(group.members)
        active = sum(subtopology.task_count for subtopology in group.subtopologies.values())
        stateful = sum(
            subtopology.task_count
            for subtopology in group.subtopologies.values()
            if subtopology.is_stateful
        )
        members = len(group.members)
        self._active_quota = _Quota(active, members)
        self._total_quota = _Quota(active + stateful * group.standby_replicas, members)
        self._process_of = {name: group.members[name].process_id for name in self._ordered}
        self._processes: dict[str, _ProcessLoad] = {}
        self._previous_active: dict[Task, str] = {}
        self._previous_standby: dict[Task, list[str]] = {}

    def run(self) -> Steps[dict[str, Tasks]]:
        """Assign all tasks."""
        if not self._group.members and any(self._task_ids(only_stateful=False)):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        for position, member_id in enumerate(self._ordered):
            if position % SLICE == 0:
                yield
            spec = self._group.members[member_id]
            self._processes.setdefault(spec.process_id, _ProcessLoad()).counts[member_id] = 0
            for task in tasks_of(spec.tasks.active):
                self._previous_active[task] = member_id
            for task in tasks_of(spec.tasks.standby):
                self._previous_standby.setdefault(task, []).append(member_id)
        yield from self._assign_active()
        if self._group.standby_replicas > 0:
            yield from self._assign_standby()
        target: dict[str, Tasks] = {}
        for member_id in self._group.members:
            target[member_id] = Tasks(
                _compact(self._load(member_id).active.get(member_id, ())),
                _compact(self._load(member_id).standby.get(member_id, ())),
            )
            if len(target) % SLICE == 0:
                yield
        return target

    def _load(self, member_id: str) -> _ProcessLoad:
        return self._processes[self._process_of[member_id]]

    def _task_ids(self, *, only_stateful: bool) -> list[Task]:
        return [
            (name, index)
            for name, subtopology in self._group.subtopologies.items()
            if subtopology.is_stateful or not only_stateful
            for index in range(subtopology.task_count)
        ]

    def _least_loaded_first(self) -> _JavaQueue[_ProcessLoad]:
        ordered = in_hash_map_order(self._processes, max(1, len(self._group.members)))
        return _JavaQueue(attrgetter("load"), [self._processes[name] for name in ordered])

    def _assign_active(self) -> Steps[None]:
        tasks = sorted(self._task_ids(only_stateful=False), key=_by_partition)
        unassigned = []
        for position, task in enumerate(tasks):
            if position % SLICE == 0:
                yield
            if not self._keep_active(task, self._previous_active.get(task)):
                unassigned.append(task)
        yield
        unassigned = [
            task
            for task in unassigned
            if not self._keep_active(
                task, self._least_loaded(self._previous_standby.get(task), None)
            )
        ]
        processes = self._least_loaded_first()
        for position, task in enumerate(sorted(unassigned)):
            if position % SLICE == 0:
                yield
            process = processes.poll()
            self._count_active(process.add_to_least_loaded(task, is_active=True))
            processes.add(process)

    def _keep_active(self, task: Task, member_id: str | None) -> bool:
        """Assign a task to the member that had it, within its share; whether it was."""
        if member_id is None:
            return False
        process = self._load(member_id)
        if process.counts[member_id] >= self._active_quota.limit:
            return False
        self._count_active(process.add(member_id, task, is_active=True))
        return True

    def _count_active(self, count: int) -> None:
        self._active_quota.count(count)
        self._total_quota.count(count)

    def _least_loaded(self, members: list[str] | None, task: Task | None) -> str | None:
        """Return the member of the least loaded process; with a task, only if it has it not.

        As in Kafka the first member's process decides whether the task is there already.
        """
        if not members:
            return None
        candidate = members[0]
        first = self._load(candidate)
        process_load, member_load = first.load, first.counts[candidate]
        for member_id in members[1:]:
            process = self._load(member_id)
            if process.load >= process_load or (task is not None and process.has_task(task)):
                continue
            if process.counts[member_id] < member_load:
                candidate = member_id
                process_load, member_load = process.load, process.counts[member_id]
        return candidate if task is None or not first.has_task(task) else None

    def _assign_standby(self) -> Steps[None]:
        replicas = self._group.standby_replicas
        unassigned: list[tuple[Task, int]] = []
        stateful = sorted(self._task_ids(only_stateful=True), key=_by_partition, reverse=True)
        for position, task in enumerate(stateful):
            if position % SLICE == 0:
                yield
            for index in range(replicas):
                if not self._keep_standby(task):
                    unassigned.append((task, replicas - index))
                    break
        unassigned.sort(key=itemgetter(0), reverse=True)
        processes = self._least_loaded_first()
        for position, (task, count) in enumerate(unassigned):
            if position % SLICE == 0:
                yield
            for index in range(count):
                if not self._add_standby(processes, task):
                    _log.warning(
                        "%d of %d standby tasks of %s_%d find no process; "
                        "start more instances or threads",
                        replicas - index,
                        replicas,
                        *task,
                        extra={"event": "streams.standby_unassigned"},
                    )
                    break

    def _keep_standby(self, task: Task) -> bool:
        """Assign a standby task to a member that had the task, within its share."""
        active = self._previous_active.get(task)
        if active is not None and not self._load(active).has_task(task) and self._has_room(active):
            self._total_quota.count(self._load(active).add(active, task, is_active=False))
            return True
        standby = self._least_loaded(self._previous_standby.get(task), task)
        if standby is None or not self._has_room(standby):
            return False
        self._total_quota.count(self._load(standby).add(standby, task, is_active=False))
        return True

    def _has_room(self, member_id: str) -> bool:
        return self._load(member_id).counts[member_id] < self._total_quota.limit

    def _add_standby(self, processes: _JavaQueue[_ProcessLoad], task: Task) -> bool:
        passed: list[_ProcessLoad] = []
        is_found = False
        while len(processes):
            process = processes.poll()
            passed.append(process)
            if not process.has_task(task):
                self._total_quota.count(process.add_to_least_loaded(task, is_active=False))
                is_found = True
                break
        for process in reversed(passed):
            processes.add(process)
        return is_found


def _by_partition(task: Task) -> tuple[int, str]:
    return task[1], task[0]


def _compact(tasks: Iterable[Task]) -> TaskMap:
    indexes: dict[str, list[int]] = {}
    for key, partition in sorted(tasks):
        indexes.setdefault(key, []).append(partition)
    return {key: tuple(partitions) for key, partitions in indexes.items()}
