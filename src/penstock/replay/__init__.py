"""Replays past sessions: their cost with compactions at other moments."""
