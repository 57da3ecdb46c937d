"""The terminal agent: its own tools, attachments, and how it is put together."""
