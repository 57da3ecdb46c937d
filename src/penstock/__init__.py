"""Penstock: the context engine."""
