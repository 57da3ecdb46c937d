"""Penstock in the frameworks that people already use: one module for each, imported when it is used.

    from penstock.integrations.langchain import PenstockMiddleware

Each needs its own extra, such as `pip install "penstock-context[langchain]"`.
"""
