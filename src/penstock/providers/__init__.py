"""Models behind HTTP: clients per dialect, what their errors mean, and which of them serves a task."""
