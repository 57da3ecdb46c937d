"""The tests. A package only so that they can share `tests.strategies` and `tests.processes`."""
