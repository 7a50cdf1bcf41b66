"""A text that is never printed: passwords, keys, tokens.

Kafka: org.apache.kafka.common.config.types.Password, which hides its value in `toString` only.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from typing import Self

HIDDEN: Final = "[hidden]"


class Secret:
    """Holds a text; only `reveal` returns it.

    It is not a string, so that formatting, joining and JSON do not reveal it. It cannot be pickled.
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the text, to be used at once and not to be kept."""
        return self.__text

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, format_spec: str) -> str:
        return format(HIDDEN, format_spec)

    def __bool__(self) -> bool:
        return bool(self.__text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(self.__text.encode(), other.reveal().encode())

    def __hash__(self) -> int:
        return hash((Secret, self.__text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
