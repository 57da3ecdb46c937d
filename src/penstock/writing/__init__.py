"""Writing a handoff: reading messages once, choosing what to quote, checking what a model wrote. Pure."""
