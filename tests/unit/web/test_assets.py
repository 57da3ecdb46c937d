"""The files that pages load: what is vendored is exactly what its makers released, and styles load nothing."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

from penstock.web.page import asset_path, read_asset

# From the packages htmx.org 2.0.11, uplot 1.6.32 and axe-core 4.14.0 of the npm registry.
VENDORED = {
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
AXE = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"


@pytest.mark.parametrize("name", VENDORED)
def test_vendored_files_are_what_was_released(name):
    assert hashlib.sha256(read_asset(name)).hexdigest() == VENDORED[name]


def test_the_checker_of_the_tests_is_what_was_released():
    file = Path(__file__).parents[2] / "e2e" / "vendor" / "axe.min.js"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == AXE
    assert file.with_name("axe.LICENSE").is_file()


def test_every_vendored_file_has_its_licence_beside_it():
    there = {one.name for one in files("penstock.web").joinpath("assets").iterdir()}
    assert there == {*VENDORED, "htmx.LICENSE", "uPlot.LICENSE", "style.css", "page.js", "mark.svg"}
    assert "Zero-Clause BSD" in read_asset("htmx.LICENSE").decode()
    assert "MIT" in read_asset("uPlot.LICENSE").decode()


def test_styles_and_scripts_name_no_other_place():
    assert not re.search(r"url\(|@import|https?:", read_asset("style.css").decode())
    assert not re.search(r"https?:|eval|innerHTML", read_asset("page.js").decode())


def test_an_address_changes_with_its_file():
    digest = hashlib.sha256(read_asset("page.js")).hexdigest()[:12]
    assert asset_path("page.js") == f"/assets/{digest}/page.js"
