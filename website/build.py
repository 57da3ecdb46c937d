"""Builds the site: lays the documents out as pages, has Zensical write the HTML, and checks every link of the result.

The documents stay where readers of the repository find them (`README.md`, `docs/`, `examples/`), with links that work there.
Here they get the addresses of the site, and their links follow.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import penstock
from website.links import find_broken_links

__all__ = ["build_site", "list_pages", "stage_pages"]

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
STAGE = ROOT / "out" / "website"
SUMMARY = importlib.metadata.metadata("penstock-context")["Summary"]
# Documents outside of `docs/`, and where they stand on the site. The README's part is taken by the landing page.
PLACES = {
    "README.md": "index.md",
    "docs/index.md": "contents.md",
    "BENCHMARKS.md": "benchmarks.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "LICENSE": "project/licence.md",
    "docs/adr/README.md": "adr/index.md",
    "examples/README.md": "examples/index.md",
    "website/home.md": "index.md",
}
# The names of `import penstock`, in the order in which readers meet them.
API = {
    "Compress a list": ("compress", "acompress", "handoff", "Compressed", "Receipt"),
    "Engines": ("ContextCompressor", "LosslessEngine", "ContextEngine", "Hosting", "Summariser"),
    "Sessions and stores": ("Session", "open_store"),
    "Models": ("connect", "mark_cache", "Usage", "normalise_usage"),
    "Training data": (
        "compress_trajectory",
        "acompress_trajectory",
        "compress_trajectories",
        "TrajectoryMetrics",
    ),
    "Settings and errors": ("Settings", "PenstockError", "ErrorClass", "classify_error"),
}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".service": "ini"}
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_FIGURES = re.compile(r"<!-- (?:figures|end of figures): [\w-]+(?:, bare)? -->\n?")


def build_site(stage: Path = STAGE) -> int:
    """Builds into the folder `site` of `stage`. Returns 0, or 1 after saying what is wrong."""
    stage_pages(stage)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    if subprocess.run(command, cwd=stage, check=False).returncode:
        return 1
    site = stage / "site"
    for page in (stage / "pages").rglob(
        "*.md"
    ):  # the Markdown beside the HTML, where llms.txt says that it is
        shutil.copy2(page, site / page.relative_to(stage / "pages"))
    if broken := find_broken_links(site):
        print("Links that lead nowhere:", *broken, sep="\n  ", file=sys.stderr)
        return 1
    print(f"The site is in {site}: {len(list(site.rglob('*.html')))} pages, no broken link.")
    return 0


def stage_pages(stage: Path) -> None:
    """Writes the source of the site: pages, pictures, the configuration."""
    shutil.rmtree(stage, ignore_errors=True)
    pages = stage / "pages"
    for file, place in _places():
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix in {".md", ""} or file.suffix in LANGUAGES:
            target.write_text(_write_page(file, place), encoding="utf-8")
        else:
            shutil.copy2(file, target)
    (pages / "reference").mkdir(exist_ok=True)
    (pages / "reference" / "api.md").write_text(_write_api(), encoding="utf-8")
    for name in ("penstock.css", "penstock.js"):
        shutil.copy2(HERE / name, pages / name)
    configuration = (HERE / "zensical.toml").read_text(encoding="utf-8")
    source = json.dumps(str(ROOT / "src"))
    (stage / "zensical.toml").write_text(configuration.replace('"src"', source), encoding="utf-8")
    (pages / "llms.txt").write_text(_write_llms(pages), encoding="utf-8")


@cache
def _places() -> tuple[tuple[Path, str], ...]:
    """Each file of the repository that has a place on the site, and that place."""
    return tuple(_find_places())


def _find_places() -> Iterator[tuple[Path, str]]:
    for name, place in PLACES.items():
        if name != "README.md":
            yield ROOT / name, place
    for file in sorted((ROOT / "docs").rglob("*")):
        if file.suffix in {".md", ".svg", ".png"} and _name(file) not in PLACES:
            yield file, _place(_name(file))
    named = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for name in dict.fromkeys(re.findall(r"\]\((\w+\.py)\)", named)):
        yield ROOT / "examples" / name, _place(f"examples/{name}")
    for file in sorted((ROOT / "deploy").iterdir()):
        yield file, _place(_name(file))
    yield ROOT / "src/penstock/web/assets/mark.svg", "mark.svg"


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _place(name: str) -> str:
    """The place of a file that is not in PLACES: `docs/` goes, and code is shown on a page."""
    path = PurePosixPath(name)
    code = path.suffix in LANGUAGES or path.name == "Dockerfile"
    return f"{name}.md" if code else name.removeprefix("docs/")


def _write_page(file: Path, place: str) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix in LANGUAGES or file.name == "Dockerfile":
        return f"# {file.name}\n\n```{LANGUAGES.get(file.suffix, 'dockerfile')}\n{text}```\n"
    if file.name == "LICENSE":
        return f"# Licence\n\n```text\n{text}```\n"
    text = _FIGURES.sub("", text)
    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(lambda found: _relink(found, file, place), part) for part in parts[::2]]
    return "".join(parts)


def _relink(found: re.Match[str], file: Path, place: str) -> str:
    before, target, fragment, after = found.groups()
    if re.match(r"[a-z]+:", target):
        return found[0]
    name = _name(Path(os.path.normpath(file.parent / target)))
    known = {_name(one): its for one, its in _places()} | {"README.md": PLACES["README.md"]}
    if name not in known:
        raise FileNotFoundError(f"{_name(file)} links to {target}, which is no page of the site")
    new = os.path.relpath(known[name], PurePosixPath(place).parent)
    return f"{before}{PurePosixPath(new).as_posix()}{fragment or ''}{after}"


def _write_api() -> str:
    """A page with the docstring and the signature of every name in `import penstock`."""
    if set(penstock.__all__) != {name for names in API.values() for name in names}:
        raise ValueError("API in website/build.py does not list the names of `import penstock`")
    parts = [
        "# API reference",
        "Every name of `import penstock`, from its docstring. These names are stable; what lies deeper in the package is not.",
    ]
    for title, names in API.items():
        parts += [f"## {title}", *(f"::: penstock.{name}" for name in names)]
    return "\n\n".join(parts) + "\n"


def _write_llms(pages: Path) -> str:
    """The contents of the site for programs: https://llmstxt.org. Each page is also there as Markdown."""
    lines = ["# Penstock", "", f"> {SUMMARY}", ""]
    nav = tomllib.loads((HERE / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    for entry in nav:
        ((title, below),) = entry.items()
        lines += [f"## {title}", ""]
        for place in list_pages(below):
            heading = re.search(r"^# (.+)$", (pages / place).read_text(encoding="utf-8"), re.MULTILINE)
            lines.append(f"- [{heading[1] if heading else title}]({place})")
        lines.append("")
    return "\n".join(lines)


def list_pages(below: Any) -> Iterator[str]:
    """Yields the places of all pages in a part of the navigation."""
    if isinstance(below, str):
        yield below
    elif isinstance(below, dict):
        for one in below.values():
            yield from list_pages(one)
    else:
        for one in below:
            yield from list_pages(one)
