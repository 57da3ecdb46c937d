"""The engine `lossless`: handoffs that are outlines of a tree, every node of which can be opened."""
