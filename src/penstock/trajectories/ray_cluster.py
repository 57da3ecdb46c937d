"""A Ray cluster to work on: one that runs somewhere, or one that is started on this machine and ends with the run."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import warnings
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RayCluster", "first_line"]

_STORE_BYTES = 64 << 20  # for the shards in flight, of which none has more than a few megabytes
_STORE_BYTES_PER_WORKER = 64 << 20
_REACHED_SECONDS = 5.0
_SILENT = {"RAY_USAGE_STATS_ENABLED": "0"}  # nothing is told to anybody
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # so named, but Linux keeps to it too
_LOGGERS = ("ray", "ray.data")


class RayCluster:
    """A cluster by its address: "auto", or HOST:PORT. Without one it is started here, with `workers` processes."""

    def __init__(self, workers: int, address: str | None = None) -> None:
        """Raises SettingsError where Ray is not installed, or nobody answers at the address."""
        self._workers = workers
        self._address = address
        if address is not None:
            _require_answer(address)
        self.ray = _loaded(address)

    @contextmanager
    def connected(self) -> Iterator[int]:
        """While the block runs, Ray is connected to it and says nothing; gives the number of its cores.

        A cluster that the caller had connected to is used, and stays connected. Raises SettingsError where there is none.
        """
        ours = not self.ray.is_initialized()
        if ours:
            self._connect()
        try:
            with _quiet():
                yield max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        finally:
            if ours:
                self.ray.shutdown()

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "CRITICAL"}
        try:
            if self._address is not None:
                self.ray.init(address=self._address, **quiet)
                return
            self.ray.init(
                address="local",
                num_cpus=self._workers,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES + self._workers * _STORE_BYTES_PER_WORKER,
                **quiet,
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _no_cluster(self._address or "this machine", first_line(error)) from error


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _loaded(address: str | None) -> Any:
    """Ray, slow to load and without a word about its types. What it may do must be said before that."""
    os.environ.update(_SILENT)
    if address is None or _is_here(address):
        os.environ.update(_LOOPBACK)
    if address is None:  # else Ray would write a key for its clusters into the user's home
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
    try:
        import_module("ray.data")
    except ImportError:
        raise SettingsError(
            "the engine ray needs the package ray with its data part: pip install 'penstock[ray]'; or use --engine local"
        ) from None
    return import_module("ray")


@contextmanager
def _quiet() -> Iterator[None]:
    """What fails is told by what is raised; what is retried needs no telling."""
    before = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="ray")
            yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _require_answer(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "/" in address or not host or not port.isdigit():
        raise SettingsError(f"the address of a Ray cluster is HOST:PORT or auto, not {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, first_line(error)) from error


def _is_here(address: str) -> bool:
    return address.rpartition(":")[0].strip("[]") in ("127.0.0.1", "localhost", "::1")


def _no_cluster(address: str, why: str) -> SettingsError:
    return SettingsError(
        f"no Ray cluster could be used at {address} ({why.partition('. ')[0].rstrip('.')}); "
        "start one with `ray start --head`, set RAY_AUTH_MODE and RAY_AUTH_TOKEN as it has them, or use --engine local"
    )
