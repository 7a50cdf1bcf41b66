"""What a case of the differential comparison is: a request, when it makes sense, what it reaches.

Kafka: clients' `RequestResponseTest` gathers one of each request the same way.

A family module names its cases in `CASES`. The fields of a request are plain data; those that a
version does not carry are left out, as a client of that version would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.protocol.api_keys import ApiKey, advertised_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.protocol.schema import Request, StructMeta
    from tests.conformance.differential.side import Side

    Fields = Callable[[Side, int], dict[str, Any]]
    After = Callable[[Side, int], Any]

MAX_VERSION = 0x7FFF


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request, sent in each of its versions.

    `errors` are the codes, except 0, in Kafka's answers over all versions: a case that does not
    reach its error fails. `after` looks at what the request did.
    `silent` says that Kafka never answers, so that the timeout is short.
    """

    api: type[Request]
    name: str
    fields: Fields
    errors: frozenset[int]
    lowest: int
    highest: int
    after: After | None
    listener: str
    silent: bool

    @property
    def key(self) -> ApiKey:
        """The API."""
        return ApiKey(self.api.message_key)

    @property
    def label(self) -> str:
        """API, name and listener, as tests and allowed differences call it."""
        at = "@controller" if self.listener == "controller" else ""
        return f"{self.key.name.lower()}{at}: {self.name}"

    def versions(self) -> range:
        """Return the versions in which the case is sent."""
        live = advertised_versions(self.key)
        lowest = max(self.lowest, self.api.versions.lowest)
        return range(lowest, min(self.highest, live.highest) + 1)

    def request(self, side: Side, version: int) -> Request:
        """Do what must be there first, and make the request of this version."""
        made: Request = build(self.api, version, self.fields(side, version))
        return made


def case(
    api: type[Request],
    name: str,
    fields: Fields,
    *,
    errors: Iterable[int] = (),
    versions: tuple[int, int] = (0, MAX_VERSION),
    after: After | None = None,
    listener: str = "broker",
    silent: bool = False,
) -> Case:
    """Describe a case; `versions` are the lowest and the highest that can say it."""
    return Case(
        api=api,
        name=name,
        fields=fields,
        errors=frozenset(int(code) for code in errors),
        lowest=versions[0],
        highest=versions[1],
        after=after,
        listener=listener,
        silent=silent,
    )


def build(cls: StructMeta, version: int, fields: dict[str, Any]) -> Any:
    """Make a message of plain data, less the fields that the version does not carry."""
    known = {field.name: field for field in cls.fields}
    values: dict[str, Any] = {}
    for name, value in fields.items():
        field = known[name]
        if version not in field.versions:
            continue
        values[name] = value
        if field.struct is not None and value is not None:
            inner = [build(field.struct, version, one) for one in _listed(value)]
            values[name] = inner if field.is_array else inner[0]
    return cls(**values)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
