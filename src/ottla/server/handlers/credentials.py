"""SCRAM credentials of users: described without the secrets, and altered.

Kafka: KafkaApis.handleDescribeUserScramCredentialsRequest, ControllerApis (KIP-554).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.server.requests.api import codec_form, handles
from ottla.server.requests.rights import Denied, Right

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.errors import KafkaError
    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def _may_describe(ctx: Context, request: DescribeUserScramCredentialsRequest) -> Denied | None:
    """DESCRIBE on the cluster.

    The refusal names no user, as in Kafka. A request for all users (users=null) without the right
    gets no response from Kafka; here it is refused.
    """
    if ctx.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    results = [
        _Result(user="", error_code=code, error_message=None, credential_infos=[])
        for _ in request.users or ()
    ]
    return Denied(
        DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=results)
    )


@handles(DescribeUserScramCredentialsRequest, right=_may_describe)
def describe_user_scram_credentials(
    ctx: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the requested users, or all users if none are named."""
    by_user: dict[str, list[_Result.CredentialInfo]] = {}
    for (user, mechanism), record in sorted(ctx.broker.image.scram.by_user.items()):
        info = _Result.CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        by_user.setdefault(user, []).append(info)
    requested = Counter(one.name for one in request.users or ())
    users = list(requested) or list(by_user)
    return DescribeUserScramCredentialsResponse(
        error_message="",
        results=[_result(user, requested[user], by_user.get(user, ())) for user in users],
    )


def _refused(
    request: AlterUserScramCredentialsRequest, error: KafkaError, _version: int
) -> AlterUserScramCredentialsResponse:
    """Refuse each user once, although deletions and upsertions name it."""
    response = AlterUserScramCredentialsResponse
    names = [deletion.name for deletion in request.deletions]
    names += [upsertion.name for upsertion in request.upsertions]
    return response(
        results=[
            response.AlterUserScramCredentialsResult(
                user=name, error_code=int(error.code), error_message=error.message
            )
            for name in dict.fromkeys(names)
        ]
    )


@handles(
    AlterUserScramCredentialsRequest,
    right=Right(Operation.ALTER),
    forwarded=True,
    form=codec_form(AlterUserScramCredentialsRequest, fail=_refused),
)
def alter_user_scram_credentials(
    ctx: Context, request: AlterUserScramCredentialsRequest
) -> Pending[AlterUserScramCredentialsResponse]:
    """Set and remove credentials; answered for each user when that is committed."""
    return ctx.controller.send(request, ctx.requester())


def _result(user: str, times: int, found: Sequence[_Result.CredentialInfo]) -> _Result:
    code, message = ErrorCode.NONE, ""
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif not found:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return _Result(
        user=user,
        error_code=int(code),
        error_message=message,
        credential_infos=[] if code else list(found),
    )
