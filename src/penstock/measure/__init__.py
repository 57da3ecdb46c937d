"""Tokens of a conversation, windows of models, costs of requests. Pure and offline."""
