"""What people are shown, as data: what fills a window, what was spent and saved."""
