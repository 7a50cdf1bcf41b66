"""The APIs of SCRAM credentials and of delegation tokens.

Kafka: KafkaApis.handleDescribeUserScramCredentialsRequest, ControllerApis (KIP-554); the token
requests of kafka.server.{KafkaApis, ControllerApis} (KIP-48, KIP-373).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from ottla.config.broker.endpoints import SecurityProtocol
from ottla.controller.delegation_tokens import owner_of
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.protocol.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.protocol.apis.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from ottla.protocol.apis.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.security.acl import CLUSTER_NAME, Operation, ResourceType
from ottla.security.delegation_token import is_owner_or_renewer, token_hmac
from ottla.security.principal import ANONYMOUS, USER_TYPE, Principal, parse_principal
from ottla.server.requests.api import codec_form, handles
from ottla.server.requests.rights import ByHandler, Denied, Right

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.records.metadata import DelegationTokenRecord
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
    requested = Counter(user.name for user in request.users or ())
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


_NO_TIME: Final = -1
_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_OWN: Final = ByHandler("none; the token's owner and its renewers")
_DESCRIBE: Final = ByHandler(
    "none for own tokens; others: DESCRIBE on the token, or DESCRIBE_TOKENS on its owner"
)


@handles(
    CreateDelegationTokenRequest,
    right=ByHandler("CREATE_TOKENS on the user, for another owner"),
    forwarded=True,
    notes={3: "owners other than the requester (KIP-373)"},
)
def create_delegation_token(
    ctx: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | Pending[Any]:
    """Make a token; one for another owner needs CREATE_TOKENS for that user."""
    owner = owner_of(request, ctx.principal)
    if not _may_use_tokens(ctx):
        return _refused_token(ctx, owner, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    is_own = str(owner) == str(ctx.principal)
    if not is_own and not ctx.authorize(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return _refused_token(ctx, owner, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        return _refused_token(ctx, owner, ErrorCode.INVALID_PRINCIPAL_TYPE)
    answer = ctx.controller.send(request, ctx.requester())
    return answer if _names_requesters(ctx) else answer.then(_without_requester)


@handles(RenewDelegationTokenRequest, right=_OWN, forwarded=True)
def renew_delegation_token(
    ctx: Context, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | Pending[Any]:
    """Extend a token's expiry."""
    if not _may_use_tokens(ctx):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return RenewDelegationTokenResponse(error_code=int(code), expiry_timestamp_ms=_NO_TIME)
    return ctx.controller.send(request, ctx.requester())


@handles(ExpireDelegationTokenRequest, right=_OWN, forwarded=True)
def expire_delegation_token(
    ctx: Context, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | Pending[Any]:
    """Shorten a token's expiry, or expire it now."""
    if not _may_use_tokens(ctx):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ExpireDelegationTokenResponse(error_code=int(code), expiry_timestamp_ms=_NO_TIME)
    return ctx.controller.send(request, ctx.requester())


@handles(
    DescribeDelegationTokenRequest,
    right=_DESCRIBE,
    listener="broker",
    notes={3: "requesters (KIP-373)"},
)
def describe_delegation_token(
    ctx: Context, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Describe the client's own tokens, and those of others that it may describe."""
    if not _may_use_tokens(ctx):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return DescribeDelegationTokenResponse(error_code=int(code), tokens=[])
    secret = ctx.broker.metadata.config.delegation_token_secret_key
    if secret is None:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return DescribeDelegationTokenResponse(error_code=int(code), tokens=[])
    owners = None
    if request.owners is not None:
        owners = [
            str(Principal(owner.principal_type, owner.principal_name)) for owner in request.owners
        ]
    tokens = [
        _described(token, secret.reveal())
        for token in ctx.broker.image.delegation_tokens.by_id.values()
        if (owners is None or any(is_owner_or_renewer(token, owner) for owner in owners))
        and (
            is_owner_or_renewer(token, str(ctx.principal))
            or ctx.is_allowed(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or ctx.is_allowed(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        )
    ]
    if not _names_requesters(ctx):
        tokens = [_without_requester(token) for token in tokens]
    return DescribeDelegationTokenResponse(tokens=tokens)


@handles(DescribeDelegationTokenRequest, right=_DESCRIBE, listener="controller")
def describe_at_controller(
    _ctx: Context, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Refuse: a controller does not describe tokens, although the API names its listener."""
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _may_use_tokens(ctx: Context) -> bool:
    """Whether the login is a user's own, on a connection that is encrypted or authenticated."""
    if ctx.principal.token_authenticated:
        return False
    if ctx.is_forwarded:
        return True  # the forwarding broker has checked the client's connection
    protocol = ctx.broker.metadata.config.security_protocols[ctx.listener_name]
    if protocol is SecurityProtocol.SSL:
        return ctx.principal != ANONYMOUS
    return protocol is not SecurityProtocol.PLAINTEXT


def _names_requesters(ctx: Context) -> bool:
    return ctx.api_version >= 3


def _without_requester(answer: Any) -> Any:
    answer.token_requester_principal_type = answer.token_requester_principal_name = ""
    return answer


def _refused_token(
    ctx: Context, owner: Principal, code: ErrorCode
) -> CreateDelegationTokenResponse:
    requester = ctx.principal if _names_requesters(ctx) else Principal("", "")
    return CreateDelegationTokenResponse(
        error_code=int(code),
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )


def _described(token: DelegationTokenRecord, secret: str) -> _Described:
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    renewers = [parse_principal(renewer) for renewer in token.renewers]
    return _Described(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=[
            _Described.DescribedDelegationTokenRenewer(
                principal_type=renewer.type, principal_name=renewer.name
            )
            for renewer in renewers
        ],
    )
