"""The `penstock` command: parsing, calling the engine, rendering. Nothing here decides about a conversation."""
