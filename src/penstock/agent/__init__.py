"""The terminal agent: its own tools, attachments, approvals of a project, and how it is put together."""
