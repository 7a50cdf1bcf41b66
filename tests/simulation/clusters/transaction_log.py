"""What is committed of `__transaction_state`: decisions, and the order of each id's states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.coordinator.transaction import state as records
from ottla.coordinator.transaction.state import Transaction, TransactionState
from ottla.records.batches import iterate_batches
from tests.simulation.clusters.compacted_logs import CompactedLog

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from tests.simulation.clusters.committed_logs import Batch, Replica

_S = TransactionState
FOLLOWING: Final = {
    None: {_S.EMPTY},
    _S.EMPTY: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT},
    _S.ONGOING: {_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT},
    _S.PREPARE_COMMIT: {_S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {_S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT},
    _S.COMPLETE_ABORT: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT},
}
"""The states that may follow a state in the log; None is an id that is not known."""


def decoded(key: bytes | None, value: bytes | None) -> tuple[str, Transaction | None] | None:
    """Return the id and its state, None for one that is forgotten; None for other records."""
    record = records.decode(key or b"", value)
    if record is None:
        return None
    return record.key, record.value


class CommittedTransactions(CompactedLog):
    """One partition of `__transaction_state`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.decisions: set[tuple[int, int, bool]] = set()
        """Producer id and epoch of the markers, and whether they commit."""
        self._states: dict[str, TransactionState] = {}

    def _learn(self, replica: Replica, batch: Batch) -> None:
        known = set(self._records)
        super()._learn(replica, batch)
        for offset in sorted(set(self._records) - known):
            _, key, value = self._records[offset]
            found = decoded(key, value)
            if found is not None:
                self._follow(offset, *found)

    def _follow(self, offset: int, name: str, transaction: Transaction | None) -> None:
        before = self._states.pop(name, None)
        if transaction is None:
            assert before is None or not before.is_prepared, (
                f"{self.name} forgets {name} at {offset} in {before!r}"
            )
            return
        state = self._states[name] = transaction.state
        assert state in FOLLOWING[before], (
            f"{self.name} has {state!r} of {name} at {offset} after {before!r}"
        )
        if state.is_prepared:
            commits = state is TransactionState.PREPARE_COMMIT
            self.decisions.add((transaction.producer_id, transaction.producer_epoch, commits))


def replayed(log: PartitionLog) -> dict[str, Transaction]:
    """Return the states of all ids that a log holds, from the bytes of its files."""
    found: dict[str, Transaction] = {}
    for segment in log.segments:
        data = segment.file._content.data  # type: ignore[attr-defined] # a SimulatedFile
        for batch in iterate_batches(bytes(data[: segment.size])):
            if batch.is_control:
                continue
            for record in batch.records():
                one = decoded(record.key, record.value)
                if one is None:
                    continue
                name, transaction = one
                found.pop(name, None)
                if transaction is not None:
                    found[name] = transaction._replace(record_offset=record.offset)
    return found
