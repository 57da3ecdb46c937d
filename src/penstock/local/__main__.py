"""`python -m penstock.local`: serve a model until Ctrl-C. Prints the base URL, and nothing else, on stdout."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from penstock.errors import PenstockError
from penstock.local.server import LocalServer


def main(arguments: list[str] | None = None) -> int:
    """Returns exit code 0 after Ctrl-C or SIGTERM, 2 when the model could not be served, 1 when its process died."""
    given = _parser().parse_args(arguments)
    try:
        server = LocalServer(
            given.model, context_tokens=given.context_tokens, threads=given.threads, port=given.port
        )
        for number in (signal.SIGINT, signal.SIGTERM):  # SIGTERM ends the block below as Ctrl-C does
            signal.signal(number, signal.default_int_handler)
        with server:
            sys.stderr.write(f"{server.model}, {server.context_tokens} tokens. Ctrl-C stops it.\n")
            sys.stdout.write(f"{server.base_url}\n")
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:
        return 0
    except PenstockError as error:
        sys.stderr.write(f"penstock.local: {error}\n")
        return 2
    sys.stderr.write("penstock.local: the model's process has ended\n")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m penstock.local", description="Serve a model on this machine.")
    parser.add_argument("--model", type=Path, metavar="FILE", help="a GGUF file (default: the bundled model)")
    parser.add_argument(
        "--context-tokens", type=int, default=8_192, metavar="N", help="the window (default: 8192)"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="default: half of the cores")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: any free one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
