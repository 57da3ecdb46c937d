"""The parts of the site that need no browser: links are checked, and everything that it should hold is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from website import build, dependencies
from website.links import find_broken_links, find_outside_loads

import penstock

ROOT = Path(__file__).parents[2]


def make_site(folder, **pages):
    for name, body in pages.items():
        page = folder / name / "index.html" if name != "index" else folder / "index.html"
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"<html><body>{body}</body></html>", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "link",
    [
        '<a href="missing/">',
        '<a href="other/#nowhere">',
        '<a href="#nowhere">',
        '<img src="missing.png">',
        '<script src="missing.js"></script>',
        '<link rel="stylesheet" href="missing.css">',
        '<a href="../outside/">',
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, link):
    site = make_site(tmp_path, index=link, other="<h1 id='here'>")
    address = re.search(r'(?:href|src)="([^"]+)"', link)[1]
    assert find_broken_links(site) == [f"index.html: {address}"]


def test_links_that_lead_somewhere_are_not(tmp_path):
    links = (
        '<a href="other/"><a href="other/#here"><a href="https://example.org/x"><a href="#top"><p id="top">'
    )
    assert find_broken_links(make_site(tmp_path, index=links, other="<h1 id='here'>")) == []


def test_what_is_loaded_from_elsewhere_is_found(tmp_path):
    site = make_site(
        tmp_path,
        index='<script src="https://cdn.example/x.js"></script><a href="https://example.org/">fine</a>',
        other='<link rel="stylesheet" href="//fonts.example/css">',
    )
    assert list(find_outside_loads(site)) == [
        "index.html: https://cdn.example/x.js",
        "other/index.html: //fonts.example/css",
    ]


def test_every_page_is_in_the_navigation(tmp_path):
    build.stage_pages(tmp_path / "stage")
    pages = tmp_path / "stage" / "pages"
    nav = tomllib.loads((ROOT / "website" / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    listed = set(build.list_pages(nav))
    written = {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    beside = {
        name for name in written if name.startswith(("adr/0", "deploy/"))
    }  # linked from pages about them
    assert listed == written - beside
    assert (pages / "llms.txt").read_text(encoding="utf-8").count("](") == len(listed)
    assert all(
        f"::: penstock.{name}\n" in (pages / "reference/api.md").read_text() for name in penstock.__all__
    )


def test_every_dependency_is_on_its_page_with_its_reason():
    page = dependencies.PAGE.read_text(encoding="utf-8")
    rows = page.partition(dependencies.BEGIN)[2].partition(dependencies.END)[0]
    reasons = dependencies.list_reasons()
    assert len(reasons) > 5
    for name, reason in reasons.items():
        assert f"| `{name.replace('_', '-')}` | {reason} |" in rows
    assert rows.count("| `") == len(reasons)
