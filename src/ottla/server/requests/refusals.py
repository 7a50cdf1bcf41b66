"""Refusals: the response in which everything that a request names has an error code.

Requests and responses name things by the same words, so one walk over both schemas builds the
refusal of any API: keys are copied, codes and texts are set, at the outermost level that has a code
in this version. `refused` refuses a whole request; `result_maker` the elements of one of its lists.

Kafka: AbstractRequest.getErrorResponse of each request.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import response_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.errors import KafkaError
    from ottla.protocol.schema import Field, Request, StructMeta

_CODES: Final = frozenset({"error_code", "partition_error_code"})
_TEXT: Final = "error_message"
_SYNONYMS: Final = (
    ("name", "topic", "topic_name", "user"),
    ("partition_index", "partition", "partition_id", "index"),
    *((name,) for name in ("topic_id", "group_id", "transactional_id", "producer_id", "key")),
    *((name,) for name in ("resource_type", "resource_name", "entity_type", "entity_name")),
    *((name,) for name in ("member_id", "group_instance_id", "id", "feature", "log_dir")),
)
"""Fields that name what a result is about, and their other names in the request."""
_KEYS: Final = {name: names for names in _SYNONYMS for name in names}
_UNKNOWN: Final = {
    **dict.fromkeys(("committed_offset", "high_watermark", "low_watermark", "node_id", "port"), -1),
    "records": b"",
}
"""What a refused element has in fields that the schema gives no such default."""


class _Shape(NamedTuple):
    """How a refusal is built from an element of the request."""

    make: StructMeta
    constants: dict[str, Any]
    codes: tuple[str, ...]
    text: str | None
    keys: tuple[tuple[str, str | None, bool], ...]
    """A field of the result, that of the element (None: its own name), whether it may be null."""
    lists: tuple[tuple[str, str | None, _Shape | None], ...]
    """A list of the result, and that of the element from which it is made; None: it is empty."""

    def fill(self, element: Any, code: int, text: str | None) -> Any:
        """Return the refusal of an element."""
        values = dict(self.constants)
        for name in self.codes:
            values[name] = code
        if self.text is not None:
            values[self.text] = text
        for name, source, is_nullable in self.keys:
            value = element if source is None else getattr(element, source)
            values[name] = "" if value is None and not is_nullable else value
        for name, source, shape in self.lists:
            named = () if source is None else getattr(element, source) or ()
            values[name] = [] if shape is None else [shape.fill(item, code, text) for item in named]
        return self.make(**values)


def refused(request: Request, error: KafkaError, version: int, *, in_items: bool = False) -> Any:
    """Return the response that refuses a whole request.

    With `in_items` the lists of a response that has a code of its own name the error as well. The
    text of an unknown error of the server, which clients cannot use, stands in items alone.
    """
    text = None if error.code is ErrorCode.UNKNOWN_SERVER_ERROR else error.message
    return _refused(request, error.code, text, error.message, version, in_items=in_items)


def refused_without_text(request: Request, code: ErrorCode, version: int) -> Any:
    """Return the same with a code alone, as Kafka refuses members of groups."""
    return _refused(request, code, None, None, version, in_items=False)


def _refused(
    request: Request,
    code: ErrorCode,
    text: str | None,
    text_of_items: str | None,
    version: int,
    *,
    in_items: bool,
) -> Any:
    cls = response_class(type(request).message_key)
    response: Any = cls()
    has_code = False
    for field in cls.fields:
        if version not in field.versions:
            continue
        if field.name in _CODES:
            has_code = True
            setattr(response, field.name, int(code))
        elif field.name == _TEXT:
            response.error_message = text
        elif field.name == "protocol_name" and version in field.nullable:
            response.protocol_name = None
    if in_items or not has_code:
        for out, source, shape in _result_lists(type(request), version):
            elements = getattr(request, source) or ()
            results = [shape.fill(element, int(code), text_of_items) for element in elements]
            setattr(response, out, results)
    return response


def result_list(request: type[Request], source: str, version: int) -> str:
    """Return the name of the response's list that answers a list of the request."""
    return next(out for out, name, _ in _result_lists(request, version) if name == source)


def result_maker(
    request: type[Request], source: str, version: int
) -> Callable[[Any, int, str | None], Any]:
    """Return a function (element, code, text) → refusal, for the elements of a list."""
    return next(shape.fill for _, name, shape in _result_lists(request, version) if name == source)


@cache
def _result_lists(request: type[Request], version: int) -> tuple[tuple[str, str, _Shape], ...]:
    """Return the lists of a response with codes, each with the list of the request it answers."""
    return tuple(_pairs(response_class(request.message_key), request, version))


def _pairs(result: StructMeta, source: StructMeta, version: int) -> list[tuple[str, str, _Shape]]:
    """Pair lists of a result with those of its source: of the same name, else with the first."""
    lists = {field.name: field for field in _present(source, version) if field.is_array}
    pairs = []
    for field in _present(result, version):
        if field.is_array and field.struct is not None and _has_code(field.struct, version):
            named = lists.get(field.name) or next(iter(lists.values()), None)
            if named is not None:
                shape = _shape(field.struct, named.struct, version)
                is_keyed = any(key.name in _KEYS for key in _present(field.struct, version))
                if shape.keys or not is_keyed:
                    pairs.append((field.name, named.name, shape))
    return pairs


def _shape(result: StructMeta, source: StructMeta | None, version: int) -> _Shape:
    fields = _present(result, version)
    names = {field.name: field for field in _present(source, version)} if source else {}
    keys: list[tuple[str, str | None, bool]] = []
    for field in fields:
        if field.name in _KEYS and not field.is_array:
            is_nullable = version in field.nullable
            if source is None:
                keys.append((field.name, None, is_nullable))
                break
            known = next((key for key in (field.name, *_KEYS[field.name]) if key in names), None)
            if known is not None:
                keys.append((field.name, known, is_nullable))
    codes = tuple(field.name for field in fields if field.name in _CODES)
    lists: dict[str, tuple[str | None, _Shape | None]] = {
        field.name: (None, None) for field in fields if field.is_array
    }
    if source is not None and not codes:
        lists |= {out: (name, shape) for out, name, shape in _pairs(result, source, version)}
    for field in fields:
        known_list = names.get(field.name)
        if field.is_array and known_list is not None and _names_alone(field.struct):
            assert field.struct is not None
            nested = _shape(field.struct, known_list.struct, version)
            lists[field.name] = field.name, nested
    return _Shape(
        result,
        {field.name: _UNKNOWN[field.name] for field in fields if field.name in _UNKNOWN},
        codes,
        _TEXT if any(field.name == _TEXT for field in fields) else None,
        tuple(keys),
        tuple((name, *rest) for name, rest in lists.items()),
    )


def _names_alone(struct: StructMeta | None) -> bool:
    """Whether a struct is a name of several parts, as an entity of quotas."""
    return struct is not None and all(field.name in _KEYS for field in struct.fields)


def _present(struct: StructMeta, version: int) -> list[Field]:
    return [field for field in struct.fields if version in field.versions]


def _has_code(struct: StructMeta, version: int) -> bool:
    return any(
        field.name in _CODES
        or (field.is_array and field.struct is not None and _has_code(field.struct, version))
        for field in _present(struct, version)
    )
