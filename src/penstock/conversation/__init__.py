"""Conversations: messages, dialects, rules, opening, handles, identity, documents, log and view."""
