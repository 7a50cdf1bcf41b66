"""The exceptions named for error codes, for `except` clauses; names as in Java's client.

Kafka: org.apache.kafka.common.errors.

`KafkaError(code, text)` makes an instance of the class that has this code. Codes without a class
here are plain `KafkaError`s: compare `error.code`.
"""

from __future__ import annotations

import builtins

from ottla.errors.base import NamedError
from ottla.errors.codes import ErrorCode


class TimeoutError(NamedError, builtins.TimeoutError, code=ErrorCode.REQUEST_TIMED_OUT):  # noqa: A001 - Kafka's name; `except TimeoutError` catches it without an import
    """A call, request or delivery that did not end in time; also Python's TimeoutError.

    The code is REQUEST_TIMED_OUT, or that of the response that was retried until the end.
    """

    def __init__(
        self, message: str | None = None, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
    ) -> None:
        super(NamedError, self).__init__(code, message)


class AuthorizationError(NamedError):
    """An operation that the principal may not do; the base of the following."""


class TopicAuthorizationError(AuthorizationError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """The topic may not be used in this way."""


class GroupAuthorizationError(AuthorizationError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """The group may not be used in this way."""


class ClusterAuthorizationError(AuthorizationError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """The cluster may not be changed or read in this way."""


class AuthenticationError(NamedError):
    """A login that failed; the base of the following."""


class SaslAuthenticationError(AuthenticationError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """Wrong credentials, or a refused token."""


class UnsupportedSaslMechanismError(AuthenticationError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """A sasl.mechanism that the listener does not offer."""


class IllegalSaslStateError(AuthenticationError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """A login that the listener does not expect: a wrong security.protocol."""


class SslAuthenticationError(AuthenticationError):
    """TLS that the peer does not speak, or a certificate that is not accepted; has no code."""


class UnknownServerError(NamedError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """The broker failed for a reason that it did not name."""


class OffsetOutOfRangeError(NamedError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """An offset outside the partition's log."""


class LogTruncationError(OffsetOutOfRangeError):
    """A log that no longer has the records before a consumer's position, and no reset policy.

    After an election the log of `topic` and `partition` differs from `divergent_offset` on, None
    where the leader cannot tell; the position is `offset`. Raised by `poll` until a seek (KIP-320;
    Kafka: LogTruncationException).
    """

    def __init__(self, place: tuple[str, int, int], divergent_offset: int | None) -> None:
        self.topic, self.partition, self.offset = place
        self.divergent_offset = divergent_offset
        where = "an unknown offset" if divergent_offset is None else f"offset {divergent_offset}"
        super().__init__(
            f"{self.topic}-{self.partition} was truncated to {where}, below the "
            f"position {self.offset}, and auto.offset.reset is none; seek to continue"
        )


class UnknownTopicOrPartitionError(NamedError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """A topic or partition that does not exist."""


class LeaderNotAvailableError(NamedError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """A partition without a leader at the moment."""


class NotLeaderOrFollowerError(NamedError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    """The broker is no longer a replica, or not the leader, of the partition."""


class BrokerNotAvailableError(NamedError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """No broker could be reached."""


class RecordTooLargeError(NamedError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """A record larger than max.message.bytes or max.request.size."""


class OffsetMetadataTooLargeError(NamedError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The metadata of a committed offset exceeds offset.metadata.max.bytes."""


class NetworkError(NamedError, code=ErrorCode.NETWORK_EXCEPTION):
    """A connection ended before the response was received."""


class CoordinatorLoadInProgressError(NamedError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    """The group coordinator is loading its state."""


class CoordinatorNotAvailableError(NamedError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    """The group has no coordinator at the moment."""


class NotCoordinatorError(NamedError, code=ErrorCode.NOT_COORDINATOR):
    """The broker is no longer the coordinator of the group."""


class InvalidTopicError(NamedError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """A topic name that Kafka does not allow, or an operation on an internal topic."""


class RecordBatchTooLargeError(NamedError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """A batch larger than the topic's segment.bytes."""


class NotEnoughReplicasError(NamedError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer in-sync replicas than min.insync.replicas; nothing was written."""


class NotEnoughReplicasAfterAppendError(
    NamedError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
):
    """Written, but to fewer replicas than min.insync.replicas."""


class IllegalGenerationError(NamedError, code=ErrorCode.ILLEGAL_GENERATION):
    """A request with the generation of an earlier rebalance."""


class InconsistentGroupProtocolError(NamedError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """No assignor in common with the group's other members."""


class InvalidGroupIdError(NamedError, code=ErrorCode.INVALID_GROUP_ID):
    """A missing or invalid group.id."""


class UnknownMemberIdError(NamedError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group does not know this member: it was removed or never joined."""


class InvalidSessionTimeoutError(NamedError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """A session.timeout.ms outside the broker's limits."""


class RebalanceInProgressError(NamedError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is rebalancing."""


class InvalidTimestampError(NamedError, code=ErrorCode.INVALID_TIMESTAMP):
    """A timestamp outside the topic's limits."""


class TopicExistsError(NamedError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """A topic of this name exists."""


class InvalidPartitionsError(NamedError, code=ErrorCode.INVALID_PARTITIONS):
    """A number of partitions that is not allowed."""


class InvalidReplicationFactorError(NamedError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """A replication factor below 1 or above the number of brokers."""


class InvalidReplicaAssignmentError(NamedError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """A replica assignment that is inconsistent or names unknown brokers."""


class InvalidConfigurationError(NamedError, code=ErrorCode.INVALID_CONFIG):
    """Topic, broker or group settings that the broker refused."""


class NotControllerError(NamedError, code=ErrorCode.NOT_CONTROLLER):
    """The node is not the active controller."""


class InvalidRequestError(NamedError, code=ErrorCode.INVALID_REQUEST):
    """A request that contradicts itself or the protocol."""


class PolicyViolationError(NamedError, code=ErrorCode.POLICY_VIOLATION):
    """A request that the cluster's policy refused."""


class OutOfOrderSequenceError(NamedError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """A gap in the sequence of an idempotent producer."""


class InvalidProducerEpochError(NamedError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A producer whose epoch is older than the current one."""


class SecurityDisabledError(NamedError, code=ErrorCode.SECURITY_DISABLED):
    """The broker has no authorizer, or the feature is switched off."""


class KafkaStorageError(NamedError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """The broker's disk failed."""


class LocalDiskError(KafkaStorageError):
    """A disk of this node failed.

    `str()` is for the log and for who starts the node: it has paths and causes. `message`, which
    clients get, is Kafka's text.
    """

    def __init__(self, details: str) -> None:
        super().__init__(details)
        self.message = self.code.text


class GroupNotEmptyError(NamedError, code=ErrorCode.NON_EMPTY_GROUP):
    """A group that has members."""


class GroupIdNotFoundError(NamedError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """A group that does not exist."""


class TopicDeletionDisabledError(NamedError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """delete.topic.enable is false."""


class UnsupportedCompressionTypeError(NamedError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """A compression type that the peer does not support."""


class PreferredLeaderNotAvailableError(NamedError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
    """The preferred leader of the partition is not available."""


class GroupMaxSizeReachedError(NamedError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group has group.max.size members."""


class FencedInstanceIdError(NamedError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member joined with the same group.instance.id."""


class ElectionNotNeededError(NamedError, code=ErrorCode.ELECTION_NOT_NEEDED):
    """The preferred replica is the leader already."""


class GroupSubscribedToTopicError(NamedError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """Offsets of a topic that the group is subscribed to."""


class InvalidRecordError(NamedError, code=ErrorCode.INVALID_RECORD):
    """A record that the broker refused, such as one without a key in a compacted topic."""


class UnstableOffsetCommitError(NamedError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT):
    """Offsets with a pending transaction."""


class ThrottlingQuotaExceededError(NamedError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    """The quota of topic creations and deletions is exceeded."""


class ResourceNotFoundError(NamedError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """A resource that does not exist."""


class DuplicateResourceError(NamedError, code=ErrorCode.DUPLICATE_RESOURCE):
    """A resource that is named twice in a request."""


class FeatureUpdateFailedError(NamedError, code=ErrorCode.FEATURE_UPDATE_FAILED):
    """A feature level that could not be changed."""


class UnknownTopicIdError(NamedError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """A topic id that does not exist."""
