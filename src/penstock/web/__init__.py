"""HTML and SVG from data, for pages that need no other file."""
