"""The agent's loop: ask, run tools, log, and repeat. Tools are handed in."""
