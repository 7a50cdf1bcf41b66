"""The schema notation for messages: typed classes whose fields are in wire order.

One class serves all versions; a field that a version does not carry holds its default, so handlers
never branch on type. The same notation describes requests, responses, metadata records, coordinator
records and checkpoint records. Codecs are compiled from it by `protocol.codec` on first use.

Kafka: the `common/message/*.json` definitions and their generated classes;
org.apache.kafka.message.Versions.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, dataclass_transform

from ottla.types import SendItem, Uuid

_MAX_VERSION = 0x7FFF


class Versions(NamedTuple):
    """A closed range of versions; empty when lowest > highest."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        if self.highest == _MAX_VERSION:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = Versions(0, -1)


@cache
def parse_versions(text: str) -> Versions:
    """Read "3", "0-4", "7+" or "none"; raise ValueError for anything else."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _MAX_VERSION)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))


int8 = Annotated[int, "int8"]
int16 = Annotated[int, "int16"]
uint16 = Annotated[int, "uint16"]
int32 = Annotated[int, "int32"]
uint32 = Annotated[int, "uint32"]
int64 = Annotated[int, "int64"]
float64 = Annotated[float, "float64"]
Records: TypeAlias = SendItem | list[SendItem]
"""Record batches: a view of the frame when decoded; buffers and file slices when encoded."""

_ZERO: dict[str, Any] = {
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "bool": False,
    "str": "",
    "bytes": b"",
    "Uuid": Uuid(),
    "Records": None,
}
PRIMITIVES = frozenset(_ZERO)
_UNSET: Any = object()
EMPTY: Any = _UNSET
"""Default of an optional field: an empty list or a struct of defaults."""
_CLASS_KEYWORDS = {
    "key": "message_key",
    "listeners": "api_listeners",
    "latest_version_unstable": "latest_version_unstable",
}


class FieldOptions:
    """Arguments of `field(...)`; None means "as the message"."""

    __slots__ = (
        "default",
        "flexible",
        "ignorable",
        "nullable",
        "sensitive",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(self, versions: str | None, default: Any, **options: Any) -> None:
        self.versions = versions
        self.default = default
        self.nullable: str | None = options["nullable"]
        self.tag: int | None = options["tag"]
        self.tagged: str | None = options["tagged"]
        self.ignorable: bool = options["ignorable"]
        self.flexible: str | None = options["flexible"]
        self.sensitive: bool = options["sensitive"]


def field(
    versions: str | None = None,
    *,
    default: Any = _UNSET,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    flexible: str | None = None,
    sensitive: bool = False,
) -> Any:
    """Describe a field: versions that carry it, default, versions in which it may be null.

    `tag` makes it a tagged field, in the versions `tagged` (by default, all of its versions);
    `flexible` overrides the message's flexible versions for this field alone ("none": the field
    keeps its old encoding, as a request header's client id); `sensitive` hides it from repr.
    """
    return FieldOptions(
        versions,
        default,
        nullable=nullable,
        tag=tag,
        tagged=tagged,
        ignorable=ignorable,
        flexible=flexible,
        sensitive=sensitive,
    )


class Field:
    """A field with its resolved annotation, as used by the codecs, tests and repr."""

    __slots__ = (
        "default",
        "element",
        "flexible",
        "ignorable",
        "is_array",
        "name",
        "nullable",
        "sensitive",
        "struct",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(
        self, owner: StructMeta, name: str, annotation: str, options: FieldOptions
    ) -> None:
        text, optional = _split_optional(annotation)
        self.name = name
        self.is_array = text.startswith("list[")
        self.element = text[5:-1] if self.is_array else text
        self.struct = None if self.element in PRIMITIVES else _resolve(owner, self.element)
        self.versions = (
            parse_versions(options.versions) if options.versions else Versions(0, 0x7FFF)
        )
        self.nullable = _nullable_versions(options, self.versions, optional=optional)
        self.tag = options.tag
        self.tagged = _tagged_versions(options, self.versions)
        self.ignorable = options.ignorable
        self.flexible = parse_versions(options.flexible) if options.flexible else None
        self.sensitive = options.sensitive
        self.default = self._default(options)

    def _default(self, options: FieldOptions) -> Any:
        if options.default is not _UNSET:
            return options.default
        return () if self.is_array else _ZERO.get(self.element, _UNSET)

    def make_default(self) -> Any:
        """Return the default, a new object where it is mutable."""
        if self.default is None:
            return None
        if self.is_array:
            return []
        if self.struct is not None:
            return self.struct()
        return self.default


def _split_optional(annotation: str) -> tuple[str, bool]:
    text = annotation.replace(" ", "")
    return (text[: -len("|None")], True) if text.endswith("|None") else (text, False)


def _nullable_versions(options: FieldOptions, versions: Versions, *, optional: bool) -> Versions:
    if options.nullable:
        return parse_versions(options.nullable)
    return versions if optional else NO_VERSIONS


def _tagged_versions(options: FieldOptions, versions: Versions) -> Versions:
    if options.tag is None:
        return NO_VERSIONS
    return parse_versions(options.tagged) if options.tagged else versions


def _resolve(owner: StructMeta, name: str) -> StructMeta:
    """Find a struct named in an annotation: nested in its owner, or in the owner's module."""
    found = owner.__dict__.get(name) or getattr(sys.modules[owner.__module__], name, None)
    if not isinstance(found, StructMeta):
        raise TypeError(f"{owner.__qualname__}: no struct named {name}")
    return found


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Turns annotations into slots; annotations are resolved on first use."""

    versions: Versions
    flexible: Versions
    message_key: int
    _options: dict[str, FieldOptions]
    _annotations: dict[str, str]
    _fields: tuple[Field, ...] | None

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_kwargs: Any
    ) -> StructMeta:
        """Move field options out of the namespace, so that slots can have their names."""
        annotations = {
            key: text
            for key, text in namespace.get("__annotations__", {}).items()
            if not str(text).startswith("ClassVar")
        }
        options = {key: _as_options(namespace.pop(key, _UNSET)) for key in annotations}
        namespace["__slots__"] = tuple(annotations)
        cls = super().__new__(mcs, name, bases, namespace)
        cls._annotations, cls._options, cls._fields = annotations, options, None
        return cls

    def __init__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: str | None = None,
        flexible: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, bases, namespace)
        if versions is not None:
            cls.versions = parse_versions(versions)
        if flexible is not None:
            cls.flexible = parse_versions(flexible)
        for key, value in kwargs.items():
            setattr(cls, _CLASS_KEYWORDS[key], value)

    @property
    def fields(cls) -> tuple[Field, ...]:
        """The fields in wire order."""
        if cls._fields is None:
            cls._fields = tuple(
                Field(cls, name, text, cls._options[name])
                for name, text in cls._annotations.items()
            )
        return cls._fields

    def take_fields_of(cls, other: StructMeta) -> None:
        """Describe the same fields as another class, whose slots this one inherits."""
        cls._annotations, cls._options = other._annotations, other._options
        cls._fields = other.fields


def _as_options(value: Any) -> FieldOptions:
    return value if isinstance(value, FieldOptions) else field(default=value)


class Struct(metaclass=StructMeta):
    """A message or a part of one. Keyword arguments set fields; other fields have defaults.

    Class keywords: `versions` and `flexible`, on the outermost class only.
    """

    versions: ClassVar[Versions] = Versions(0, 0)
    flexible: ClassVar[Versions] = NO_VERSIONS
    unknown_tagged_fields: ClassVar[tuple[tuple[int, bytes], ...]] = ()
    message_key: ClassVar[int] = -1

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self)._annotations)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={_show(self, f)}" for f in type(self).fields)
        return f"{type(self).__name__}({shown})"


def _show(message: Struct, described: Field) -> str:
    value = getattr(message, described.name)
    if described.sensitive:
        return "[hidden]"
    if described.element == "Records":
        return "None" if value is None else "<records>"
    return repr(value)


def _compile_init(cls: StructMeta) -> Any:
    """Generate the constructor: one attribute store per field, with keyword defaults."""
    names: dict[str, Any] = {"_unset": _UNSET}
    parameters, body = [], []
    for described in cls.fields:
        name = described.name
        mutable = described.default is not None and (described.is_array or described.struct)
        if mutable:
            names[f"_make_{name}"] = described.make_default
            parameters.append(f"{name}=_unset")
            maker = "[]" if described.is_array else f"_make_{name}()"
            body.append(f"  self.{name} = {maker} if {name} is _unset else {name}")
        else:
            names[f"_default_{name}"] = described.default
            parameters.append(f"{name}=_default_{name}")
            body.append(f"  self.{name} = {name}")
    head = (
        f"def __init__(self, *, {', '.join(parameters)}):" if parameters else "def __init__(self):"
    )
    exec("\n".join([head, *(body or ["  pass"])]), names)  # noqa: S102 - our own schema, no input
    return names["__init__"]


class Request(Struct):
    """A request body. Class keywords: key, versions, flexible, listeners, unstable."""

    __slots__ = ()
    api_listeners: ClassVar[tuple[str, ...]] = ()
    latest_version_unstable: ClassVar[bool] = False


class Response(Struct):
    """A response body. Class keywords: key, versions, flexible."""

    __slots__ = ()
