"""Each field of a client's SCRAM messages, changed in turn, and what a node answers.

`FIRST` and `FINAL` are asked of a login in this process and of real Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

USER: Final = "fields"
"""Its password is its name."""
NONCE: Final = "client"
MECHANISM: Final = "SCRAM-SHA-256"
_NEUTRAL: Final = (
    "58 Authentication failed during authentication due to invalid credentials with SASL "
    f"mechanism {MECHANISM}"
)
_OTHER_USER: Final = (
    "58 Authentication failed: Client requested an authorization id that is different from username"
)
GOES_ON: Final = "goes on"
CLOSED: Final = "closed"
_SHORT: Final = base64.b64encode(bytes(31)).decode()
_LONG: Final = base64.b64encode(bytes(64)).decode()
IN: Final = "in"
FIRST: Final = {
    f"n,,n={USER},r={NONCE}": GOES_ON,
    f"n,a={USER},n={USER},r={NONCE}": GOES_ON,
    f"n,a=other,n={USER},r={NONCE}": _OTHER_USER,
    f"n,a=,n={USER},r={NONCE}": _NEUTRAL,
    f"n,b={USER},n={USER},r={NONCE}": _NEUTRAL,
    f"y,,n={USER},r={NONCE}": _NEUTRAL,
    f"p=tls-unique,,n={USER},r={NONCE}": _NEUTRAL,
    f",,n={USER},r={NONCE}": _NEUTRAL,
    f"n,n={USER},r={NONCE}": _NEUTRAL,
    f"n,,m=a,n={USER},r={NONCE}": GOES_ON,
    f"n,,m=,n={USER},r={NONCE}": _NEUTRAL,
    f"n,,n=,r={NONCE}": _NEUTRAL,
    f"n,,n=fie=2Clds=,r={NONCE}": _NEUTRAL,
    f"n,,n=fie=41lds,r={NONCE}": _NEUTRAL,
    f"n,,r={NONCE}": _NEUTRAL,
    f"n,,r={NONCE},n={USER}": _NEUTRAL,
    f"n,,n={USER}": _NEUTRAL,
    f"n,,n={USER},r=": _NEUTRAL,
    f"n,,n={USER},r=a b": _NEUTRAL,
    f"n,,n={USER},r=\x7f": _NEUTRAL,
    f"n,,n={USER},r={NONCE},": _NEUTRAL,
    f"n,,n={USER},r={NONCE},x": _NEUTRAL,
    f"n,,n={USER},r={NONCE},x=": _NEUTRAL,
    f"n,,n={USER},r={NONCE},1=1": _NEUTRAL,
    f"n,,n={USER},r={NONCE},ext=1": GOES_ON,
    f"n,,n={USER},r={NONCE},tokenauth=false": GOES_ON,
    "": _NEUTRAL,
    "n": _NEUTRAL,
    ",,,": _NEUTRAL,
}
"""By the client's first message."""
FINAL: Final[dict[tuple[str, str], str]] = {
    ("c", "biws"): IN,
    ("c", "eSws"): _NEUTRAL,
    ("c", "biws=="): _NEUTRAL,
    ("c", "biw"): _NEUTRAL,
    ("c", "%"): _NEUTRAL,
    ("c", ""): _NEUTRAL,
    ("r", "{nonce}2"): _NEUTRAL,
    ("r", NONCE): _NEUTRAL,
    ("r", "2{nonce}"): _NEUTRAL,
    ("r", ""): _NEUTRAL,
    ("p", base64.b64encode(bytes(32)).decode()): _NEUTRAL,
    ("p", _SHORT): _NEUTRAL,
    ("p", _LONG): _NEUTRAL,
    ("p", "AA"): _NEUTRAL,
    ("p", "%"): _NEUTRAL,
    ("p", ""): _NEUTRAL,
    ("p", "{proof},x=1"): _NEUTRAL,
    ("x", "1"): IN,
    ("1", "1"): _NEUTRAL,
}
"""By the field that is changed before the proof is made (x and 1 are new); p itself after it."""


KAFKAS: Final[dict[tuple[str, str], str]] = {
    ("c", "eSws"): IN,
    ("c", ""): IN,
    ("p", _SHORT): CLOSED,
    ("p", _LONG): CLOSED,
    ("p", ""): CLOSED,
    ("x", "1"): _NEUTRAL,
}
"""What real Kafka does otherwise: it does not look at the binding, has no answer to a proof of
another length, and does not count an extension as signed (RFC 5802 does)."""


def first_outcome(ask: Callable[[bytes], Any], message: str) -> str:
    """Return what comes of a first message."""
    code, text, _ = ask(message.encode())
    return f"{code} {text}" if code else GOES_ON


def final_outcome(ask: Callable[[bytes], Any], field: str, value: str) -> str:
    """Return what comes of a final message with one field changed."""
    bare = f"n={USER},r={NONCE}"
    code, _, answer = ask(f"n,,{bare}".encode())
    assert code == 0
    server_first = answer.decode()
    given = dict(part.split("=", 1) for part in server_first.split(","))
    fields = {"c": "biws", "r": given["r"]}
    if field != "p":
        fields[field] = value.format(nonce=given["r"])
    unsigned = ",".join(f"{name}={text}" for name, text in fields.items())
    iterations, salt = int(given["i"]), base64.b64decode(given["s"])
    salted = hashlib.pbkdf2_hmac("sha256", USER.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"{bare},{server_first},{unsigned}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    if field == "p":
        proof = value.format(proof=proof)
    code, text, _ = ask(f"{unsigned},p={proof}".encode())
    return f"{code} {text}" if code else IN
