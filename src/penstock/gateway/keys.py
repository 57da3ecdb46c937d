"""The gateway's own keys, and the identity of callers with and without one.

A key is `pk-ID-SECRET`. The id is public: lists and logs name a key by it. Of the secret, which has 256 random bits, the
store has a digest and nothing else; it is compared in constant time. Without keys a caller is known by a digest of its own
credential, keyed by a secret of the store, so that the digest tells nothing of the credential.

Calls on the store are synchronous. `KeyRing` holds the keys in memory for a running gateway, and looks every half second
whether they have changed: that is how soon a key that was revoked by another process works no more.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import string
import threading
import time
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from penstock._log import log
from penstock.errors import ErrorKind, SettingsError, StoreError
from penstock.gateway.callers import Caller
from penstock.gateway.exchange import StoreMode  # noqa: TC001 - a struct's field types are read at run time
from penstock.sessions.retention import DAY_SECONDS, expire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.stores.database import Row, Transaction
    from penstock.stores.store import Store

__all__ = [
    "GatewayKey",
    "KeyRing",
    "KeyRules",
    "NewKey",
    "Refusal",
    "RefusalReason",
    "create_key",
    "delete_data_of",
    "find_key",
    "list_keys",
    "read_store_secret",
    "revoke_key",
]

_ID_CHARACTERS, _ID_LENGTH = string.ascii_lowercase + string.digits, 12
_OWN = re.compile(rf"pk-([a-z0-9]{{{_ID_LENGTH}}})-(.*)", re.DOTALL)
_NOBODY = bytes(32)  # compared with where no key has that id, so that the answer takes as long
_KEY_NEEDED = "this gateway needs one of its own keys, as a bearer token or in x-penstock-key"
_NOTES = "gateway"
_LOOK_SECONDS, _FLUSH_SECONDS, _RETENTION_SECONDS = 0.5, 5.0, 3_600.0
_SELECT = "SELECT id, name, created, last_used, expires, revoked, rules, digest FROM gateway_keys"


class KeyRules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of a key. None and empty leave it to the settings of the gateway."""

    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    requests_at_once: int | None = None
    models: tuple[str, ...] = ()
    """Patterns such as `gpt-*`; empty allows every model that the settings allow."""
    store: StoreMode | None = None
    retention_days: int | None = None


class GatewayKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the store has it. Moments are seconds since 1970."""

    id: str
    name: str
    created: float
    last_used: float | None
    expires: float | None
    revoked: float | None
    rules: KeyRules

    @property
    def owner(self) -> str:
        """The name under which its conversations are kept."""
        return f"key-{self.id}"

    def works_at(self, now: float) -> bool:
        """Returns True where the key is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class NewKey(msgspec.Struct, frozen=True):
    """A key that was just made: the only time that its text is known."""

    key: GatewayKey
    text: str

    def __repr__(self) -> str:
        return f"NewKey({self.key.id})"


_NO_RULES = KeyRules()
_READ_RULES = msgspec.json.Decoder(KeyRules).decode


RefusalReason: TypeAlias = Literal["key", "model", "rate", "budget", "busy"]


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is not let in, and why."""

    status: int
    kind: ErrorKind
    reason: RefusalReason
    message: str
    retry_after_seconds: int | None = None


# The store.


def create_key(
    store: Store, name: str, *, rules: KeyRules = _NO_RULES, expires: float | None = None, now: float
) -> NewKey:
    """Makes a key. Its text is in the result and nowhere else."""
    key_id = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))
    text = f"pk-{key_id}-{secrets.token_urlsafe(32)}"
    with store.database.writing() as do:
        do.run(
            "INSERT INTO gateway_keys (id, digest, name, created, expires, rules) VALUES (?, ?, ?, ?, ?, ?)",
            *(key_id, _digest(text), name, now, expires, msgspec.json.encode(rules)),
        )
        _note_change(do)
    return NewKey(find_key(store, key_id), text)


def list_keys(store: Store) -> list[GatewayKey]:
    """Returns all keys, the oldest first; revoked ones too."""
    with store.database.reading() as do:
        return [_build_key(row) for row in do.rows(_SELECT + " ORDER BY key")]


def find_key(store: Store, key_id: str) -> GatewayKey:
    """Returns the key with this id, or with an id that begins so. Raises SettingsError where there is none, or several."""
    own = _OWN.match(key_id)  # a whole key: its id stands in it
    wanted = own[1] if own else key_id.removeprefix("key-")
    found = [key for key in list_keys(store) if key.id.startswith(wanted)]
    exact = [key for key in found if key.id == wanted]
    if len(exact or found) != 1 or not wanted:
        what = "several keys have an id that begins with these characters" if found else "no key has this id"
        # What was given may be a key: it is not shown.
        raise SettingsError(f"{what}; penstock keys list shows them")
    return (exact or found)[0]


def revoke_key(store: Store, key_id: str, now: float) -> GatewayKey:
    """Has a key work no more; one that was revoked before stays as it is. Raises SettingsError for an unknown id."""
    key = find_key(store, key_id)
    with store.database.writing() as do:
        do.run("UPDATE gateway_keys SET revoked = ? WHERE id = ? AND revoked IS NULL", now, key.id)
        _note_change(do)
    return find_key(store, key.id)


def delete_data_of(store: Store, key: GatewayKey) -> int:
    """Deletes all conversations that came with a key; returns how many messages went. What it used stays on record."""
    return store.delete_owner(key.owner)


def _digest(text: str) -> bytes:
    """A key has all the entropy that a digest needs: a slow hash would only help who floods us with wrong keys."""
    return hashlib.sha256(b"penstock key\0" + text.encode("utf-8", "surrogatepass")).digest()


def _build_key(row: Row) -> GatewayKey:
    try:
        rules = _READ_RULES(bytes(row[6]))
    except msgspec.DecodeError as error:
        raise StoreError(
            f"the rules of the key {row[0]} cannot be read: revoke it and make another"
        ) from error
    return GatewayKey(
        id=row[0], name=row[1], created=row[2], last_used=row[3], expires=row[4], revoked=row[5], rules=rules
    )


def _note_change(do: Transaction) -> None:
    """Has running gateways read the keys again; in the transaction of the change."""
    do.run(
        "INSERT INTO notes (name, key, value) VALUES (?, ?, ?) ON CONFLICT (name, key) DO UPDATE SET value = excluded.value",
        *(_NOTES, "keys changed", secrets.token_bytes(16)),
    )


def read_store_secret(store: Store) -> bytes:
    """Returns the secret of the store that keys the digests of callers' credentials; it is made once."""
    with store.database.writing() as do:
        do.run(
            "INSERT INTO notes (name, key, value) VALUES (?, ?, ?) ON CONFLICT (name, key) DO NOTHING",
            *(_NOTES, "secret", secrets.token_bytes(32)),
        )
    return store.note(_NOTES, "secret") or b""


# A running gateway.


_MOST_OWNERS = 4_096


class KeyRing:
    """The keys of a store in the memory of a gateway, and what each has used today.

    `authorise` and the figures are for the event loop, and never wait. `refresh` and `flush` are calls on the store;
    `run` makes them, in a thread.
    """

    def __init__(
        self,
        store: Store,
        *,
        required: bool = False,
        models: Sequence[str] | None = None,
        retention_days: int | None = None,
    ) -> None:
        self._store = store
        self._required = required
        self._models = (tuple(models),) if models else ()
        self._retention_days = retention_days
        self.secret = read_store_secret(store)
        self._keys: dict[str, tuple[GatewayKey, bytes]] = {}
        self._owners: dict[str, str] = {}
        """By credential, for those that were seen last: in this memory alone."""
        self._changed: bytes | None = None
        self._last_used: dict[str, float] = {}
        self._lock = threading.Lock()  # of the figures: requests add to them while a thread writes them down
        self._day = 0
        self._spent: dict[str, int] = {}
        """The store's figures for today, by owner; what this process adds waits in `_unsaved` until it is there."""
        self._unsaved: dict[str, int] = {}
        self.refresh()
        self.flush(time.time())

    def authorise(self, headers: Mapping[str, str], now: float | None = None) -> Caller | Refusal:
        """Returns the caller, by the headers of a request, or the reason why it is refused."""
        now = time.time() if now is None else now
        named, presented = _read_credentials(headers)
        own = named or next((text for text in presented if _OWN.match(text)), "")
        foreign = [text for text in presented if not _OWN.match(text)]
        if not own and not self._required:
            return Caller(owner=self._name_owner(foreign), models=self._models)
        key = self._find(own, now) if own else None
        if key is None:
            text = "this key is unknown, expired or revoked" if own else _KEY_NEEDED
            return Refusal(status=401, kind=ErrorKind.AUTH, reason="key", message=text)
        with self._lock:
            self._last_used[key.id] = now
        return Caller(
            owner=key.owner,
            key_id=key.id,
            models=(*self._models, key.rules.models) if key.rules.models else self._models,
            store=key.rules.store,
            brings_credential=foreign == presented,  # a header with one of our keys never goes upstream
        )

    def rules_of(self, key_id: str) -> KeyRules:
        """Returns the rules of a key; a caller without one has those of the settings alone."""
        found = self._keys.get(key_id)
        return found[0].rules if found else _NO_RULES

    def find_working(self, key_id: str, now: float) -> GatewayKey | None:
        """Returns the key with this id, as long as it is neither revoked nor expired."""
        key, _ = self._keys.get(key_id, (None, b""))
        return key if key is not None and key.works_at(now) else None

    def _find(self, text: str, now: float) -> GatewayKey | None:
        own = _OWN.match(text)
        key, digest = self._keys.get(own[1] if own else "", (None, _NOBODY))
        same = hmac.compare_digest(digest, _digest(text))
        return key if same and key is not None and key.works_at(now) else None

    def _name_owner(self, credentials: Sequence[str]) -> str:
        """Returns the owner's name of a caller without one of our keys: 128 bits, so that no two callers share one."""
        if not credentials:
            return "anonymous"
        known = self._owners.get(credentials[0])
        if known is None:
            digest = hmac.digest(self.secret, credentials[0].encode("utf-8", "surrogatepass"), "sha256")
            known = f"caller-{digest[:16].hex()}"
            if len(self._owners) >= _MOST_OWNERS:
                self._owners.clear()
            self._owners[credentials[0]] = known
        return known

    # What was used.

    def spent_today(self, owner: str, now: float) -> int:
        """Returns the tokens that an owner has used since midnight, UTC."""
        with self._lock:
            self._turn_day(now)
            return self._spent.get(owner, 0) + self._unsaved.get(owner, 0)

    def spend(self, owner: str, tokens: int, now: float) -> None:
        """Adds tokens to what an owner has used today."""
        with self._lock:
            self._turn_day(now)
            self._unsaved[owner] = self._unsaved.get(owner, 0) + tokens

    def _turn_day(self, now: float) -> None:
        """Begins a new day; one that has begun goes on, unless it was a clock that has been set back since."""
        day = int(now // DAY_SECONDS)
        if not self._day - 1 <= day <= self._day:
            self._day = day
            self._spent, self._unsaved = {}, {}

    # The store.

    def refresh(self) -> None:
        """Reads the keys where they have changed. Raises StoreError."""
        changed = self._store.note(_NOTES, "keys changed") or b""
        if changed == self._changed:
            return
        with self._store.database.reading() as do:
            rows = do.rows(_SELECT)
        keys: dict[str, tuple[GatewayKey, bytes]] = {}
        for row in rows:
            try:
                keys[row[0]] = _build_key(row), bytes(row[7])
            except StoreError as error:  # that key works no more; the others do
                log.warning("%s", error)
        self._keys, self._changed = keys, changed

    def flush(self, now: float) -> None:
        """Writes down what was used, and when; reads what other gateways of the store have written. Raises StoreError."""
        with self._lock:
            self._turn_day(now)
            used, self._last_used = self._last_used, {}
            day, unsaved = self._day, dict(self._unsaved)
        if used or unsaved:
            with self._store.database.writing() as do:
                do.run_many(
                    "UPDATE gateway_keys SET last_used = ? WHERE id = ? AND (last_used IS NULL OR last_used < ?)",
                    [(at, key_id, at) for key_id, at in sorted(used.items())],
                )
                do.run_many(
                    "INSERT INTO gateway_spending (owner, day, tokens) VALUES (?, ?, ?) ON CONFLICT (owner, day) "
                    "DO UPDATE SET tokens = gateway_spending.tokens + excluded.tokens",
                    [(owner, day, tokens) for owner, tokens in sorted(unsaved.items())],
                )
                do.run("DELETE FROM gateway_spending WHERE day < ?", day - 40)
        self._read_spent(day, unsaved)

    def _read_spent(self, day: int, saved: Mapping[str, int]) -> None:
        """Takes over the store's figures of a day, and takes off our own what is in them now."""
        with self._store.database.reading() as do:
            rows = do.rows("SELECT owner, tokens FROM gateway_spending WHERE day = ?", day)
        with self._lock:
            if day != self._day:  # midnight has passed meanwhile
                return
            self._spent = {row[0]: row[1] for row in rows}
            left = {owner: tokens - saved.get(owner, 0) for owner, tokens in self._unsaved.items()}
            self._unsaved = {owner: tokens for owner, tokens in left.items() if tokens}

    def expire_data(self, now: float) -> None:
        """Deletes conversations that have not been used for as many days as the settings and their key allow.

        Raises StoreError.
        """
        if self._retention_days is not None:
            expire(self._store, now, self._retention_days)
        for key, _ in list(self._keys.values()):
            if key.rules.retention_days is not None:
                expire(self._store.for_owner(key.owner), now, key.rules.retention_days)

    async def run(self) -> None:
        """Keeps the keys current until it is cancelled, and then writes down what was used.

        Keys are looked after by themselves: writing may have to wait for the store, and deleting takes its time, while a
        revoked key works on.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._repeat(lambda _now: self.refresh(), _LOOK_SECONDS))
                tasks.create_task(self._repeat(self.flush, _FLUSH_SECONDS))
                tasks.create_task(self._repeat(self.expire_data, _RETENTION_SECONDS))
        finally:
            await asyncio.shield(self._try_in_thread(self.flush))

    async def _repeat(self, call: Callable[[float], None], pause_seconds: float) -> None:
        works = True
        while True:
            works = await self._try_in_thread(call, says=works)
            await asyncio.sleep(pause_seconds)

    async def _try_in_thread(self, call: Callable[[float], None], *, says: bool = True) -> bool:
        """Returns True if the call succeeded. A store that is away for a while takes no key away: the next call may succeed."""
        try:
            await asyncio.to_thread(call, time.time())
        except Exception as error:  # noqa: BLE001 - whatever it was: without the next call, a revoked key would go on working
            if says:
                why = error if isinstance(error, StoreError) else type(error).__name__
                log.warning("the gateway's keys could not be refreshed: %s", why)
            return False
        return True


def _read_credentials(headers: Mapping[str, str]) -> tuple[str, list[str]]:
    """Returns the key in our own header, and what stands in those that APIs take credentials from, each as often as it came."""
    named, found = "", []
    for name, value in headers.items():
        match name.lower():
            case "x-penstock-key":
                named = value.strip()
            case "authorization":
                scheme, _, token = value.strip().partition(" ")
                found.append(token.strip() if scheme.lower() == "bearer" else value.strip())
            case "x-api-key" | "api-key":
                found.append(value.strip())
    return named, [text for text in found if text]
