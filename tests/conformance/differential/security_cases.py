"""ACLs without an authorizer, and SCRAM credentials.

Kafka: AclApis, ScramControlManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.apis.create_acls import CreateAclsRequest
from ottla.protocol.apis.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.apis.delete_acls import DeleteAclsRequest
from ottla.protocol.apis.describe_acls import DescribeAclsRequest
from ottla.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from tests.conformance.differential.case import case
from tests.conformance.differential.cluster_cases import same

if TYPE_CHECKING:
    from ottla.protocol.schema import Request
    from tests.conformance.differential.case import Case

E_ = ErrorCode
SHA_256: Final = 1
_TOPIC, _LITERAL, _READ, _ALLOW = 2, 3, 3, 3
_FILTER: dict[str, Any] = {
    "resource_type_filter": _TOPIC,
    "resource_name_filter": "t",
    "pattern_type_filter": _LITERAL,
    "principal_filter": None,
    "host_filter": None,
    "operation": _READ,
    "permission_type": _ALLOW,
}
_ACL: dict[str, Any] = {
    "resource_type": _TOPIC,
    "resource_name": "t",
    "resource_pattern_type": _LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": _READ,
    "permission_type": _ALLOW,
}


def _upsertion(**changes: Any) -> dict[str, Any]:
    usual = {
        "name": "someone",
        "mechanism": SHA_256,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"p" * 32,
    }
    return usual | changes


def _on_each_listener(
    api: type[Request], name: str, errors: tuple[int, ...], **fields: Any
) -> list[Case]:
    return [
        case(api, name, same(**fields), errors=errors, listener=listener)
        for listener in ("broker", "controller")
    ]


ACLS = [
    *_on_each_listener(
        DescribeAclsRequest, "without authorizer", (E_.SECURITY_DISABLED,), **_FILTER
    ),
    *_on_each_listener(
        CreateAclsRequest, "without authorizer", (E_.SECURITY_DISABLED,), creations=[_ACL]
    ),
    *_on_each_listener(
        DeleteAclsRequest, "without authorizer", (E_.SECURITY_DISABLED,), filters=[_FILTER]
    ),
]
CREDENTIALS = [
    one
    for name, errors, deletions, upsertions in (
        ("valid", (), [], [_upsertion()]),
        ("few iterations", (E_.UNACCEPTABLE_CREDENTIAL,), [], [_upsertion(iterations=4095)]),
        ("no name", (E_.UNACCEPTABLE_CREDENTIAL,), [], [_upsertion(name="")]),
        ("unknown mechanism", (E_.UNSUPPORTED_SASL_MECHANISM,), [], [_upsertion(mechanism=9)]),
        ("unknown", (E_.RESOURCE_NOT_FOUND,), [{"name": "unknown", "mechanism": SHA_256}], []),
        (
            "named twice",
            (E_.DUPLICATE_RESOURCE,),
            [{"name": "someone", "mechanism": SHA_256}],
            [_upsertion()],
        ),
    )
    for one in _on_each_listener(
        AlterUserScramCredentialsRequest,
        name,
        errors,
        deletions=deletions,
        upsertions=upsertions,
    )
]
_REFUSED = (E_.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,)
TOKENS = [
    *_on_each_listener(
        CreateDelegationTokenRequest, "over PLAINTEXT", _REFUSED, renewers=[], max_lifetime_ms=-1
    ),
    *_on_each_listener(
        RenewDelegationTokenRequest, "over PLAINTEXT", _REFUSED, hmac=b"x", renew_period_ms=-1
    ),
    *_on_each_listener(
        ExpireDelegationTokenRequest, "over PLAINTEXT", _REFUSED, hmac=b"x", expiry_time_period_ms=0
    ),
    case(DescribeDelegationTokenRequest, "over PLAINTEXT", same(owners=None), errors=_REFUSED),
    case(
        DescribeDelegationTokenRequest,
        "at a controller",
        same(owners=None),
        errors=(E_.UNKNOWN_SERVER_ERROR,),
        listener="controller",
    ),
]
"""What is refused without a login; with one: `tests/conformance/security`."""
CASES: list[Case] = [*ACLS, *CREDENTIALS, *TOKENS]
