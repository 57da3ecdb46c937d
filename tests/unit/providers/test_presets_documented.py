"""The guide's table of providers is the table of the code."""

import re
from pathlib import Path

from penstock.providers.presets import PRESETS

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "providers.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def test_every_provider_is_in_the_guide_with_its_dialect_address_and_key():
    rows = {name: rest for name, *rest in ROW.findall(GUIDE.read_text("utf-8"))}
    assert set(rows) == set(PRESETS)
    for name, (dialect, address, key) in rows.items():
        preset = PRESETS[name]
        assert dialect == preset.dialect
        assert address == f"`{preset.base_url}`" if preset.base_url else address.startswith("yours: ")
        assert key == (
            f"none needed (`{preset.key_variable}`)" if preset.key_optional else f"`{preset.key_variable}`"
        )
