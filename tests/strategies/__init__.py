"""Hypothesis strategies for conversations in every dialect."""
