"""Finds links of a built site that lead nowhere: pages, pictures, scripts, and places within a page."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["find_broken_links", "find_outside_loads"]

LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        """Tag, attribute and address."""
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := named.get(name))}
        if tag == "link" and named.get("rel") not in {"stylesheet", "icon", "prev", "next"}:
            return
        self.links += [(tag, name, value) for name in ("href", "src") if (value := named.get(name))]


def find_broken_links(site: Path) -> list[str]:
    """Returns a line for each link of a page to what is not there. The addresses of other sites are not asked."""
    pages = {page: _Page(page.read_text(encoding="utf-8")) for page in sorted(site.rglob("*.html"))}
    return [
        f"{page.relative_to(site)}: {address}"
        for page, read in pages.items()
        if page.name != "404.html"  # its addresses begin at the root of a host that is not known here
        for _, _, address in read.links
        if not _leads_somewhere(address, page, site, pages)
    ]


def find_outside_loads(site: Path) -> Iterator[str]:
    """Yields a line for each script, style or picture that a page loads from another host."""
    for page in sorted(site.rglob("*.html")):
        for tag, name, address in _Page(page.read_text(encoding="utf-8")).links:
            if (tag, name) in LOADS and urlsplit(address).netloc:
                yield f"{page.relative_to(site)}: {address}"


def _leads_somewhere(address: str, page: Path, site: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_file() or not target.is_relative_to(site):
        return False
    fragment = unquote(parts.fragment)
    return not fragment or target not in pages or fragment in pages[target].ids
