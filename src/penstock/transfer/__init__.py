"""Conversations that come from elsewhere or go elsewhere: other programs' files, other dialects. Pure."""
