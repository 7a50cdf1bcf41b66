"""The load of processes and members while tasks are assigned.

Kafka: org.apache.kafka.coordinator.group.streams.assignor.ProcessState; java.util.PriorityQueue,
whose order among equal entries decides who gets a task.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.coordinator.runtime.java_hash import in_hash_map_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.coordinator.group.streams.assignors.spec import Task

T = TypeVar("T")


class JavaQueue(Generic[T]):
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


class ProcessLoad:
    """The members of a process and the tasks assigned to them so far."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Tasks by member."""
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        self._tasks: set[Task] = set()
        self._assigned = 0
        self._by_load: JavaQueue[_Entry] | None = None

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
            self._by_load = JavaQueue(attrgetter("count"), self._entries())
        entry = self._by_load.poll()
        entry.count = self._add(entry.member_id, task, is_active=is_active)
        self._by_load.add(entry)
        return entry.count

    def _entries(self) -> list[_Entry]:
        ordered = in_hash_map_order(self.counts)
        return [_Entry(member_id, self.counts[member_id]) for member_id in ordered]
