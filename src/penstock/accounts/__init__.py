"""The figures and lists that people are shown, as data: usage and spending, conversations, search results, what fills the window.

The command line prints it, the chat shows it, a page draws it: each takes the same frozen values from here. Nothing
here prints, colours or parses options.

- `spending`: what requests cost, what compactions cost and saved; `penstock usage` and `penstock insights`
- `conversations`: the list of conversations, and one of them with its sessions and compactions
- `search`: messages that match a query, with the titles of their conversations
- `window`: what fills the window, by kind of content
- `status`: where a running agent stands
- `display`: money, times and counts as people read them, text without secrets
"""
