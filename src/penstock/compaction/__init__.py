"""Plan, summarise, verify, assemble: pure functions from a conversation to a smaller one."""
