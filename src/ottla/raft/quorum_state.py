"""The file `quorum-state`: the newest epoch, its leader and this node's vote.

Kafka: org.apache.kafka.raft.{FileQuorumStateStore, ElectionState}. Version 0 is written with
static voters (kraft.version 0), version 1 with voters that are stored in the log.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import CorruptMessage, KafkaError, LocalDiskError
from ottla.storage.layout import QUORUM_STATE
from ottla.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from ottla.storage.directory import Directory

NO_NODE: Final = -1
_MAX_BYTES: Final = 1 << 20
_LAST_EPOCH: Final = (1 << 31) - 1


class ElectionState(NamedTuple):
    """The election result of the newest known epoch."""

    leader_epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID
    voter_ids: tuple[int, ...] = ()
    """Only stored with static voters."""


def encode_quorum_state(state: ElectionState, *, kraft_version: int) -> bytes:
    """Return the file's content."""
    if kraft_version == 0:
        content: dict[str, Any] = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in state.voter_ids],
            "data_version": 0,
        }
    else:
        content = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": str(state.voted_directory_id),
            "data_version": 1,
        }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> ElectionState:
    """Read the file's content; CorruptMessage when it is damaged.

    A node that cannot read its vote must not vote again: the caller stops.
    """
    try:
        content = json.loads(data)
        version = content["data_version"]
        if version not in (0, 1):
            raise CorruptMessage(f"Unknown data_version {version} in quorum-state")
        directory = content.get("votedDirectoryId") if version == 1 else None
        voters = content.get("currentVoters") or ()
        return ElectionState(
            leader_epoch=_epoch(content),
            leader_id=_number(content, "leaderId"),
            voted_id=_number(content, "votedId"),
            voted_directory_id=Uuid.parse(directory) if directory else ZERO_UUID,
            voter_ids=tuple(_number(voter, "voterId") for voter in voters),
        )
    except CorruptMessage:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptMessage(f"the quorum-state file is damaged: {error}") from error


def _epoch(content: dict[str, Any]) -> int:
    epoch = _number(content, "leaderEpoch")
    if not 0 <= epoch < _LAST_EPOCH:
        raise CorruptMessage(f"leaderEpoch in quorum-state has no next epoch: {epoch}")
    return epoch


def _number(content: dict[str, Any], name: str) -> int:
    value = content[name]
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise CorruptMessage(f"{name} is not an int32 in quorum-state: {value!r}")
    return value


class QuorumStateStore:
    """The file in the metadata log's directory."""

    __slots__ = ("_directory", "_path")

    def __init__(self, directory: Directory, subdirectory: str) -> None:
        self._directory = directory
        self._path = f"{subdirectory}/{QUORUM_STATE}"

    def read(self) -> ElectionState | None:
        """Return the stored state, None when there is no file."""
        if not self._directory.exists(self._path):
            return None
        if self._directory.size(self._path) > _MAX_BYTES:
            raise CorruptMessage("the quorum-state file is larger than 1 MiB")
        return decode_quorum_state(self._directory.read_file(self._path))

    def read_at_start(
        self, *, log_end_offset: int, epoch_at_end: int, path: str = ""
    ) -> ElectionState:
        """Return the state to start from, at least at the epoch of the log's last record.

        KAFKA_STORAGE_ERROR when the file is damaged, or missing although the log is not empty: a
        node that has forgotten its vote could vote twice in an epoch. path is the log directory's
        name in its text.
        """
        try:
            state = self.read()
        except CorruptMessage as error:
            raise self._refusal(str(error), path) from error
        if state is None:
            if log_end_offset > 0:
                raise self._refusal("it is missing, but the metadata log is not empty", path)
            state = ElectionState()
        if epoch_at_end > state.leader_epoch:
            return state._replace(leader_epoch=epoch_at_end, voted_id=NO_NODE)
        return state

    def _refusal(self, reason: str, path: str) -> KafkaError:
        directory = path or "DIR"
        return LocalDiskError(
            f"The vote of this node is unknown, {directory}/{self._path} cannot be used: {reason}. "
            "Restore the file from a backup; or, when this node is the only voter, write a new "
            f"one: ottla log-repair --log-dir {directory} --new-quorum-state",
        )

    def write(self, state: ElectionState, *, kraft_version: int) -> None:
        """Store the state; it is durable on return."""
        data = encode_quorum_state(state, kraft_version=kraft_version)
        self._directory.write_file_atomically(self._path, data)
