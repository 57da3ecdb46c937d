"""`python -m website.dependencies`: writes the table of what Penstock depends on, from `pyproject.toml`, the lock and PyPI."""

import importlib.metadata
import json
import re
import tomllib
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["BEGIN", "END", "PAGE", "list_reasons"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "dependencies.md"
BEGIN, END = "<!-- dependencies -->", "<!-- end of dependencies -->"


class Release(NamedTuple):
    """A version on PyPI: when it came out, how large its wheel for Linux is, and whether there is one for Alpine."""

    date: str
    megabytes: float
    alpine: bool


def list_reasons() -> dict[str, str]:
    """Each direct dependency, and the reason that stands beside it in `pyproject.toml`."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    found = re.findall(r'^  "([\w-]+)[^"]*", *# (.+)$', block[1] if block else "", re.MULTILINE)
    if len(found) != len(tomllib.loads(text)["project"]["dependencies"]):
        raise ValueError("a dependency in pyproject.toml has no reason beside it")
    return dict(found)


def main() -> None:
    """Asks PyPI for each package of the lock, and writes the page's table."""
    lock = (ROOT / "requirements.run.lock").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE))
    reasons = list_reasons()
    rows, without = [], []
    for name, version in versions.items():
        told = _ask(name)
        release = _read(told["releases"][version])
        if not release.alpine:
            without.append(name)
        direct = name.replace("_", "-").lower() in {one.replace("_", "-").lower() for one in reasons}
        if direct:
            reason = next(text for one, text in reasons.items() if _same(one, name))
            newest = max(files[0]["upload_time"][:10] for files in told["releases"].values() if files)
            size = _installed(name)
            rows.append(f"| `{name}` | {reason} | {size:.1f} MB | {version}, {release.date} | {newest} |")
    verdict = (
        "Every package of the lock has a wheel for musl."
        if not without
        else f"Without a wheel for musl, so built from source there: {', '.join(without)}."
    )
    table = "\n".join(
        [
            "| package | reason | installed | locked version, of | last release |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n\n{verdict}\n{END}{after}", encoding="utf-8")


def _ask(name: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"https://pypi.org/pypi/{name}/json", timeout=60) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def _read(files: list[dict[str, Any]]) -> Release:
    wheels = [file for file in files if file["packagetype"] == "bdist_wheel"]
    pure = any("-none-any" in file["filename"] for file in wheels)
    musl = any("musllinux" in file["filename"] and "x86_64" in file["filename"] for file in wheels)
    largest = max((file["size"] for file in wheels), default=0)
    return Release(files[0]["upload_time"][:10], largest / 1e6, pure or musl)


def _same(one: str, other: str) -> bool:
    return one.replace("_", "-").lower() == other.replace("_", "-").lower()


def _installed(name: str) -> float:
    files = importlib.metadata.files(name) or []
    return sum(file.size or 0 for file in files) / 1e6


if __name__ == "__main__":
    main()
