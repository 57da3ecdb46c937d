"""`penstock keys create`, `list`, `revoke`, `delete-data` and `rotate-seal`: the gateway's own keys."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.accounts.display import format_time, shorten_count
from penstock.cli.options import carry_store
from penstock.cli.screen import DECLINED, align, confirm, printable, screen_of
from penstock.cli.source import settings_of
from penstock.cli.stored import open_store_of
from penstock.errors import SettingsError
from penstock.gateway.keys import KeyRules, create_key, delete_data_of, find_key, list_keys, revoke_key
from penstock.gateway.sealing import read_keys
from penstock.measure.wording import pluralise
from penstock.sessions.retention import DAY_SECONDS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from penstock.gateway.keys import GatewayKey

__all__ = ["run_create", "run_delete_data", "run_list", "run_revoke", "run_rotate_seal"]

_LONGEST_NAME = 200


def run_create(args: argparse.Namespace) -> int:
    """Creates a key and shows it, once. Raises SettingsError."""
    if not args.name.isprintable() or not 0 < len(args.name.strip()) <= _LONGEST_NAME:
        raise SettingsError("the name of a key is one line of text, of at most 200 characters")
    if not all(pattern.strip() for pattern in args.models or ()):
        raise SettingsError("--models: a pattern is empty; give the names of models, such as 'gpt-*'")
    rules = KeyRules(
        requests_per_minute=args.requests_per_minute,
        tokens_per_day=args.tokens_per_day,
        requests_at_once=args.requests_at_once,
        models=tuple(args.models or ()),
        store=args.keep,
        retention_days=args.retention_days,
    )
    now = time.time()
    expires = None if args.days is None else now + args.days * DAY_SECONDS
    with open_store_of(args) as store:
        new = create_key(store, args.name.strip(), rules=rules, expires=expires, now=now)
    if args.json:
        screen_of(sys.stdout).say(json.dumps({**_describe(new.key, now), "key": new.text}, indent=2))
        return 0
    screen_of(sys.stdout).say(new.text)  # alone, so that a script can take it
    if sys.stderr is not None:
        note = carry_store(f"revoke it with penstock keys revoke {new.key.id}", args)
        print(f"penstock: this is the only time that the key is shown; {note}", file=sys.stderr)
    return 0


def run_list(args: argparse.Namespace) -> int:
    """Lists the keys by id and name, with their limits; never the keys themselves."""
    with open_store_of(args) as store:
        keys, url = list_keys(store), store.url
    now = time.time()
    screen = screen_of(sys.stdout)
    if args.json:
        screen.say(json.dumps([_describe(key, now) for key in keys], indent=2))
    elif not keys:
        hint = carry_store("create one with penstock keys create NAME", args)
        screen.say(f"no keys in {printable(url)}; {hint}")
    else:
        for number, line in enumerate(_list_lines(keys, now)):
            screen.say(screen.paint(line, "dim") if number == 0 else line)
    return 0


def run_revoke(args: argparse.Namespace) -> int:
    """Revokes a key. Raises SettingsError for an unknown id."""
    with open_store_of(args, must_exist=True) as store:
        before = find_key(store, args.id)
        key = revoke_key(store, before.id, time.time())
    if args.json:
        screen_of(sys.stdout).say(json.dumps(_describe(key, time.time()), indent=2))
        return 0
    was = " had been revoked before" if before.revoked is not None else " is revoked and no longer works"
    screen_of(sys.stdout).say(f"key {key.id} ({printable(key.name)}){was}")
    return 0


def run_delete_data(args: argparse.Namespace) -> int:
    """Deletes all conversations made with a key, after asking. Raises SettingsError for an unknown id."""
    with open_store_of(args, must_exist=True) as store:
        key = find_key(store, args.id)
        if not args.yes and not confirm(f"delete all conversations of key {key.id} ({printable(key.name)})?"):
            print("penstock: nothing was deleted", file=sys.stderr)
            return DECLINED
        gone = delete_data_of(store, key)
    text = f"deleted the conversations of key {key.id}, {pluralise(gone, 'message')}"
    screen_of(sys.stdout).say(
        json.dumps({"id": key.id, "deleted_messages": gone}, indent=2) if args.json else text
    )
    return 0


def run_rotate_seal(args: argparse.Namespace) -> int:
    """Creates a new key for the handoffs that clients carry; older handoffs still open. Raises SettingsError."""
    settings = settings_of(args)
    with open_store_of(args) as store:
        key = read_keys(store, settings.gateway.seal_key_file).rotate()
    text = f"handoffs are sealed with key {key.id} from now on; earlier ones can still be opened"
    screen_of(sys.stdout).say(json.dumps({"id": key.id}, indent=2) if args.json else text)
    return 0


def _list_lines(keys: Sequence[GatewayKey], now: float) -> Iterator[str]:
    rows = [["id", "state", "created", "last used", "limits", "name"]]
    rows += [
        [
            key.id,
            _state(key, now),
            format_time(key.created),
            "-" if key.last_used is None else format_time(key.last_used),
            ", ".join(_list_limits(key)) or "-",
            printable(key.name),
        ]
        for key in keys
    ]
    for cells in align(rows):
        yield "  ".join(cells).rstrip()


def _list_limits(key: GatewayKey) -> Iterator[str]:
    rules = key.rules
    if rules.requests_per_minute is not None:
        yield f"{rules.requests_per_minute:,}/min"
    if rules.tokens_per_day is not None:
        yield f"{shorten_count(rules.tokens_per_day)} tokens/day"
    if rules.requests_at_once is not None:
        yield f"{rules.requests_at_once:,} at once"
    if rules.models:
        yield printable(" ".join(rules.models))
    if rules.store is not None:
        yield f"keeps {rules.store}"
    if rules.retention_days is not None:
        yield f"{rules.retention_days:,} days"
    if key.expires is not None:
        yield f"until {format_time(key.expires)}"


def _state(key: GatewayKey, now: float) -> str:
    if key.revoked is not None:
        return "revoked"
    return "works" if key.works_at(now) else "expired"


def _describe(key: GatewayKey, now: float) -> dict[str, Any]:
    rules = key.rules
    return {
        "id": key.id,
        "name": key.name,
        "state": _state(key, now),
        "created": key.created,
        "last_used": key.last_used,
        "expires": key.expires,
        "revoked": key.revoked,
        "requests_per_minute": rules.requests_per_minute,
        "tokens_per_day": rules.tokens_per_day,
        "requests_at_once": rules.requests_at_once,
        "models": list(rules.models),
        "store": rules.store,
        "retention_days": rules.retention_days,
    }
