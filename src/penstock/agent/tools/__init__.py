"""The tools that the agent's model may call, one per file; `base.py` says what a tool is."""
