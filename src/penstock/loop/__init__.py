"""The agent's loop: ask, run tools, log, and again. Tools are handed in."""
