"""Conversations in a store: append, view, compact, undo, pin, search, import, export."""
