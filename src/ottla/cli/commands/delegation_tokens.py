"""`ottla delegation-tokens`: create, renew, expire and describe delegation tokens.

Kafka: bin/kafka-delegation-tokens.sh, org.apache.kafka.tools.DelegationTokenCommand.
"""

from __future__ import annotations

import base64
import binascii
import time
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.options.connection import open_admin
from ottla.cli.options.flags import (
    json_option,
    print_json,
    refuse_json_unless,
    require,
    server_options,
    wants_json,
)
from ottla.cli.options.joptsimple import LONG, ToolCommand, refuse_both
from ottla.cli.output.failures import fail, failures_reported
from ottla.security.principal import parse_principal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clients.admin.security import DelegationToken
    from ottla.clients.blocking import Admin

EXAMPLES = """
\b
Examples:
  ottla delegation-tokens --bootstrap-server localhost:9092 --command-config alice.properties \\
      --create --max-life-time-period -1 --renewer-principal User:bob
  ottla delegation-tokens --bootstrap-server localhost:9092 --command-config alice.properties \\
      --describe
  ottla delegation-tokens --bootstrap-server localhost:9092 --command-config alice.properties \\
      --expire --expiry-time-period -1 --hmac …
"""
_ACTIONS: Final = {
    "create": ("max_life_time_period",),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": (),
}
"""Options that each action requires."""
_NOT_WITH: Final = {
    "create": ("hmac", "renew_time_period", "expiry_time_period"),
    "renew": ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    "expire": ("max_life_time_period", "renew_time_period", "owner_principal"),
    "describe": ("renew_time_period", "max_life_time_period", "hmac", "expiry_time_period"),
}
_ROW: Final = "\n{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_HEAD: Final = (
    "TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"
)  # fmt: skip


@click.command("delegation-tokens", cls=ToolCommand, epilog=EXAMPLES)
@server_options
@json_option
@click.option("--create", is_flag=True, help="Create a token.")
@click.option("--renew", is_flag=True, help="Let a token expire later.")
@click.option("--expire", is_flag=True, help="Let a token expire earlier, or now.")
@click.option("--describe", is_flag=True, help="Show tokens.")
@click.option("--owner-principal", multiple=True, metavar="TYPE:NAME", help="The owner.")
@click.option("--renewer-principal", multiple=True, metavar="TYPE:NAME", help="May renew it.")
@click.option("--max-life-time-period", type=LONG, metavar="MS", help="-1: the broker's setting.")
@click.option("--renew-time-period", type=LONG, metavar="MS", help="-1: the broker's setting.")
@click.option("--expiry-time-period", type=LONG, metavar="MS", help="-1: now.")
@click.option("--hmac", metavar="BASE64", help="The HMAC of the token.")
def delegation_tokens(**options: Any) -> None:
    """Create, renew, expire and describe delegation tokens."""
    action = _checked_action(options)
    refuse_json_unless(action, "create", "describe")
    with (
        failures_reported(),
        open_admin(options["bootstrap_server"], options["command_config"]) as admin,
    ):
        _RUN[action](admin, options)


def _checked_action(options: dict[str, Any]) -> str:
    actions = [action for action in _ACTIONS if options[action]]
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --create, --renew, --expire or --describe"
        )
    action = actions[0]
    for name in ("bootstrap_server", "command_config", *_ACTIONS[action]):
        require(options[name], name.replace("_", "-"))
    for name in _NOT_WITH[action]:
        if options[name] not in (None, ()):
            refuse_both(action, name)
    return action


def _principals(options: dict[str, Any], name: str) -> list[str]:
    try:
        return [str(parse_principal(option.strip())) for option in options[name]]
    except ValueError as error:
        fail(str(error))


def _hmac(options: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(options["hmac"], validate=True)
    except binascii.Error:
        fail("--hmac is not in Base64")


def _list_text(principals: Sequence[str]) -> str:
    return f"[{', '.join(principals)}]"


def _date(time_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(time_ms / 1000))


def _create(admin: Admin, options: dict[str, Any]) -> None:
    renewers = _principals(options, "renewer_principal")
    owners = _principals(options, "owner_principal")
    max_lifetime_ms = options["max_life_time_period"]
    if not wants_json():
        click.echo(
            f"Calling create token operation with renewers :{_list_text(renewers)} , "
            f"max-life-time-period :{max_lifetime_ms}"
        )
    token = admin.create_delegation_token(
        owner=owners[0] if owners else None, renewers=renewers, max_lifetime_ms=max_lifetime_ms
    )
    if not wants_json():
        click.echo(f"Created delegation token with tokenId : {token.token_id}")
    _print([token])


def _renew(admin: Admin, options: dict[str, Any]) -> None:
    period_ms = options["renew_time_period"]
    click.echo(
        f"Calling renew token operation with hmac :{options['hmac']} , "
        f"renew-time-period :{period_ms}"
    )
    expires_ms = admin.renew_delegation_token(_hmac(options), renew_period_ms=period_ms)
    click.echo(f"Completed renew operation. New expiry date : {_date(expires_ms)}", nl=False)


def _expire(admin: Admin, options: dict[str, Any]) -> None:
    period_ms = options["expiry_time_period"]
    click.echo(
        f"Calling expire token operation with hmac :{options['hmac']} , "
        f"expire-time-period :{period_ms}"
    )
    expires_ms = admin.expire_delegation_token(_hmac(options), expiry_period_ms=period_ms)
    click.echo(f"Completed expire operation. New expiry date : {_date(expires_ms)}", nl=False)


def _describe(admin: Admin, options: dict[str, Any]) -> None:
    owners = _principals(options, "owner_principal")
    if not wants_json() and owners:
        shown = _list_text(owners)
        click.echo(f"Calling describe token operation for owners: {shown}")
    elif not wants_json():
        click.echo("Calling describe token operation for current user.")
    tokens = admin.describe_delegation_tokens(owners or None)
    if not wants_json():
        click.echo(f"Total number of tokens : {len(tokens)}", nl=False)
    _print(tokens)


def _print(tokens: Sequence[DelegationToken]) -> None:
    if wants_json():
        print_json([{**token._asdict(), "hmac": token.password} for token in tokens])
        return
    click.echo(_ROW.format(*_HEAD))
    for one in tokens:
        renewers = _list_text(one.renewers)
        dates = [_date(when) for when in (one.issued_ms, one.expires_ms, one.max_ms)]
        click.echo(
            _ROW.format(one.token_id, one.password, one.owner, one.requester, renewers, *dates)
        )


_RUN: Final = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}
