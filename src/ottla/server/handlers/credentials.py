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
from ottla.server.handlers.refusals import per_item_errors
from ottla.server.requests.api import handles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.purgatory.pending import Pending
    from ottla.server.requests.context import Context

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


@handles(DescribeUserScramCredentialsRequest)
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


@handles(AlterUserScramCredentialsRequest)
def alter_user_scram_credentials(
    ctx: Context, request: AlterUserScramCredentialsRequest
) -> Pending[AlterUserScramCredentialsResponse]:
    """Set and remove credentials; answered for each user when that is committed."""
    response = AlterUserScramCredentialsResponse
    names = dict.fromkeys(one.name for one in request.deletions)
    names.update(dict.fromkeys(one.name for one in request.upsertions))
    return per_item_errors(
        ctx.controller.send(request, ctx.requester()),
        lambda error: response(
            results=[response.AlterUserScramCredentialsResult(user=name, **error) for name in names]
        ),
    )


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
