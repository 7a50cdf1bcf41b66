"""The exceptions of connectors, transforms, converters and workers.

Kafka: org.apache.kafka.connect.errors.
"""

from __future__ import annotations

from ottla.errors import OttlaError


class ConnectException(OttlaError):
    """A failure of a connector or of its worker; a task that raises it fails."""


class DataException(ConnectException):
    """A value that does not fit its schema, or bytes that a converter cannot read."""


class RetriableException(ConnectException):
    """A failure that may pass: the same call is repeated, the records of a sink are kept."""


class SchemaBuilderException(DataException):
    """A schema that cannot be made."""


class NotFoundException(ConnectException):
    """A connector, task or plug-in that does not exist: 404 of the REST API."""


class AlreadyExistsException(ConnectException):
    """A connector whose name is in use: 409 of the REST API."""


class BadRequestException(ConnectException):
    """A request that cannot be carried out as it stands: 400 of the REST API."""
