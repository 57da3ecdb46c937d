"""A wire to a PostgreSQL server that counts round trips, and that can be made longer.

with Wire(url) as wire:
    store = open_store(wire.url)
    before = wire.count
    ...
    print(wire.count - before)
"""

import contextlib
import socket
import threading
import time
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

__all__ = ["Wire"]


class Wire:
    """Passes bytes between clients and a server. A client that speaks after it was answered begins a round trip.

    `delay_seconds` is how much longer each takes.
    """

    def __init__(self, url: str, delay_seconds: float = 0.0) -> None:
        self.count = 0
        self._delay_seconds = delay_seconds
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        folder, port = query.pop("host", ""), parts.port or 5432
        self._server = f"{folder}/.s.PGSQL.{port}" if folder else (parts.hostname, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        user = parts.netloc.rpartition("@")[0]
        address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        netloc = f"{user}@{address}" if user else address
        self.url = urlunsplit(parts._replace(netloc=netloc, query=urlencode(query)))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client = self._listening.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                family = socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET
                server = socket.socket(family)
                server.connect(self._server)
                self._open += (client, server)
                answered = threading.Event()  # set where the server has spoken last
                answered.set()
                for work in (self._ask, self._answer):
                    threading.Thread(target=work, args=(client, server, answered), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, answered: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if answered.is_set():
                    answered.clear()
                    self.count += 1
                    time.sleep(self._delay_seconds)
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, client: socket.socket, server: socket.socket, answered: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                answered.set()
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
