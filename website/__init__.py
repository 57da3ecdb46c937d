"""The project's site: the documents of this repository as pages, with an API reference made from the docstrings."""
