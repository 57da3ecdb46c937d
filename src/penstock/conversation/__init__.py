"""Conversations: messages and their parts, dialects, rules, opening, handles, identity, documents, log and view."""
