"""The kit of every page: HTML that escapes what is put into it, charts as SVG, styles, and the page around them."""
