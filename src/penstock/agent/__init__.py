"""The agent: tools, approvals and the system prompt of long work at a terminal."""
