"""Deciding: when to compact, what stays, what is elided, how much room each part gets. Pure."""
