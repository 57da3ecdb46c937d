"""The tools that the terminal agent's model may call, one per file; `penstock.loop.tools` says what a tool is."""
