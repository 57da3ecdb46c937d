"""Filling a template's slots with names, numbers and ids that hang together."""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.sessions.banks import NOUNS, VERBS

_T = TypeVar("_T")


class Slots(dict[str, str]):
    """Fills `{slot}` in a template. What is set on it stays; all else is new each time it is asked for."""

    def __init__(self, rng: random.Random, files: Callable[[], str], fact: Callable[[], str]) -> None:
        super().__init__()
        self.random = rng.random
        self.bits = rng.getrandbits
        self.clock = 1_760_000_000
        self.names = [f"{self.pick(VERBS)}_{self.pick(NOUNS)}" for _ in range(6)]
        self.makers: dict[str, Callable[[], str]] = {
            "path": files,
            "fact": fact,
            "fn": self._function,
            "test_path": lambda: f"tests/{self.pick(NOUNS)}/test_{self.pick(NOUNS)}_{self.pick(NOUNS)}.py",
            "verb": lambda: self.pick(VERBS),
            "cls": lambda: self.pick(NOUNS).capitalize() + self.pick(NOUNS).capitalize(),
            "camel": lambda: self.pick(VERBS) + self.pick(NOUNS).capitalize(),
            "const": lambda: f"{self.pick(NOUNS).upper()}_{self.pick(NOUNS).upper()}",
            "module": lambda: f"app.{self.pick(NOUNS)}.{self.pick(NOUNS)}",
            "slug": lambda: f"{self.pick(NOUNS)}-{self.pick(NOUNS)}-{self.bits(12)}",
            "num": lambda: str(2 + int(300 * self.random() ** 2)),
            "big": lambda: str(1_000 + self.bits(16)),
            "port": lambda: str(3_000 + self.bits(12)),
            "hex": lambda: f"{self.bits(40):010x}",
            "sha": lambda: f"{self.bits(28):07x}",
            "ip": lambda: f"10.{self.bits(6)}.{self.bits(7)}.{self.bits(7)}",
            "version": lambda: f"{self.bits(2)}.{self.bits(4)}.{self.bits(5)}",
            "stamp": self._stamp,
        }

    def pick(self, pool: Sequence[_T]) -> _T:
        return pool[int(self.random() * len(pool))]

    def _function(self) -> str:
        if self.random() < 0.04:  # a file speaks of a few functions, and slowly of others
            self.names[self.bits(2)] = f"{self.pick(VERBS)}_{self.pick(NOUNS)}_{self.pick(NOUNS)}"
        return self.pick(self.names)

    def _stamp(self) -> str:
        self.clock += self.bits(3)
        day, second = divmod(self.clock, 86_400)
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{self.bits(9):03d}"
        return f"2025-{1 + day // 28 % 12:02d}-{1 + day % 28:02d}T{clock}Z"

    def __missing__(self, slot: str) -> str:
        maker = self.makers.get(slot)
        if maker is not None:
            return maker()
        noun = self.pick(NOUNS)
        return (
            noun if slot.startswith("noun") else f"{self.pick(NOUNS)}_{noun}" if self.bits(2) == 0 else noun
        )
