"""Whole data sets of training trajectories, each row within a token budget and none lost."""
