"""The dashboard, and the kit of every page: HTML that escapes what is put into it, charts as SVG, styles.

- `markup`, `charts`, `drawings`, `page`: the kit
- `overview`, `conversation`, `transcript`, `compaction`, `search`, `usage`, `export`: a page each, from `accounts` data
- `site`: a request of a reader in, a page out
- `door`, `serving`: who may look, and HTTP around it
"""
