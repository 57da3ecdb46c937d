"""What past sessions would have cost with compactions at other moments."""
