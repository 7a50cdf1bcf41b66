"""The base classes of all exceptions, and those that no error code names.

Kafka: org.apache.kafka.common.KafkaException.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ottla.errors.codes import ErrorCode

_CLASSES: dict[int, type[NamedError]] = {}
"""The class named for each code; filled when the classes are defined."""


class OttlaError(Exception):
    """Base of every exception that Ottla raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy without calling the constructor, whose arguments are not kept."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[OttlaError], arguments: tuple[Any, ...]) -> OttlaError:
    error = kind.__new__(kind)
    error.args = arguments
    return error


class _NamedByCode(type):
    """Makes `KafkaError(code)` an instance of the class named for the code."""

    if not TYPE_CHECKING:  # for type checkers the constructors stay those of the classes

        def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
            if cls is KafkaError:
                return _of_code(*arguments, **keywords)
            return super().__call__(*arguments, **keywords)


class KafkaError(OttlaError, metaclass=_NamedByCode):
    """An error with a Kafka code; `message` is the text that goes over the wire."""

    def __init__(self, code: ErrorCode | int, message: str | None = None) -> None:
        self.code = ErrorCode(code)
        self.message = self.code.text if message is None else message
        self.kafka_message = self.message
        """The text as Kafka's tools print it, without what Ottla's clients add (`topic_error`)."""
        super().__init__(self.message)

    @property
    def is_retriable(self) -> bool:
        """Whether a client may send the same request again."""
        return self.code.is_retriable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code.name}, {self.message!r})"


def _of_code(code: ErrorCode | int, message: str | None = None) -> KafkaError:
    named = _CLASSES.get(code)
    if named is not None:
        return named(message)
    plain: KafkaError = type.__call__(KafkaError, code, message)
    return plain


def topic_error(topic: object, code: ErrorCode | int) -> KafkaError:
    """Return the error of a code whose text names the topic before Kafka's text."""
    known = KafkaError(code)
    error = KafkaError(code, f"topic {str(topic)!r}: {known.message}")
    error.kafka_message = known.message
    return error


class NamedError(KafkaError):
    """An error whose class names its code; takes the message alone."""

    default_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init_subclass__(cls, *, code: ErrorCode | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.default_code = code
            _CLASSES[code] = cls

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.default_code, message)


class CorruptMessage(NamedError, code=ErrorCode.CORRUPT_MESSAGE):
    """Bytes from the network or the disk that are malformed."""


class TooManyElements(CorruptMessage):
    """A message that announces more than a message may cost."""


class UnsupportedVersion(NamedError, code=ErrorCode.UNSUPPORTED_VERSION):
    """A message that the given version cannot carry, or an unsupported version."""


class ConfigError(NamedError):
    """Settings of a client that are unknown, missing or invalid (Kafka: ConfigException)."""

    default_code = ErrorCode.INVALID_CONFIG


class IllegalStateError(NamedError):
    """A call that the client's state does not allow (Kafka: Java's IllegalStateException)."""

    default_code = ErrorCode.INVALID_REQUEST


class ClosedError(IllegalStateError):
    """A call of a client that was closed."""


class ConnectionRefused(NamedError):
    """NETWORK_EXCEPTION: no process listens at a node's address, while its machine answers."""

    default_code = ErrorCode.NETWORK_EXCEPTION


class TransactionAbortedError(NamedError):
    """A record that was not sent before its transaction was aborted."""

    default_code = ErrorCode.TRANSACTION_ABORTABLE

    def __init__(self) -> None:
        super().__init__("Failing batch since transaction was aborted")


class AbortableTransactionError(KafkaError):
    """A transaction that must be aborted, after which the producer can be used; see its cause."""

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(cause.code, f"{cause.message} Abort the transaction.")
        self.__cause__ = cause


class FatalTransactionError(KafkaError):
    """A transactional producer that must be closed, such as one that was fenced."""

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(
            cause.code,
            f"{cause.message} Cannot execute transactional method because we are in an error "
            "state; close the producer.",
        )
        self.__cause__ = cause


class DeliveryError(KafkaError):
    """Records that were not delivered, and whose results were not requested.

    `counts` has the number of records by topic. The code is that of the first cause, which is the
    `__cause__`.
    """

    def __init__(self, counts: dict[str, int], first: KafkaError) -> None:
        self.counts = counts
        topics = ", ".join(f"topic {topic!r}: {count}" for topic, count in counts.items())
        super().__init__(
            first.code,
            f"{sum(counts.values())} record(s) were not delivered ({topics}); "
            f"first cause: {first.code.name}: {first.message}",
        )
        self.__cause__ = first


class SerializationError(NamedError):
    """A key or value that cannot be serialized; the serializer's exception is the `__cause__`."""

    default_code = ErrorCode.INVALID_RECORD


class RecordDeserializationError(SerializationError):
    """A record whose key or value cannot be deserialized; seek past `offset` to continue.

    `part` is "key" or "value"; what the deserializer raised is the `__cause__`.
    """

    def __init__(self, place: tuple[str, int, int], part: str, reason: Exception) -> None:
        self.topic, self.partition, self.offset = place
        self.part = part
        super().__init__(
            f"{self.topic}-{self.partition} at offset {self.offset}: its {part} cannot be "
            f"deserialized ({reason}); seek past it to continue",
        )


class WakeupError(OttlaError):
    """Raised by `poll` after `wakeup`; it does not report a failure."""
