"""The figures and lists that people are shown, as data: usage and spending, conversations, what fills the window.

The command line prints them, the chat shows them, a page draws them: each takes the same frozen values from here. Nothing
here prints, colours or parses options.

- `spending`: what requests used and cost, what compactions cost and saved
- `usage`: the reports of `penstock usage` and `penstock insights`
- `conversations`: the list of conversations, one of them with its sessions and compactions, messages that match a query
- `overview`, `catalogue`: the first look at a store, and all conversations in memory to be filtered and sorted
- `timeline`, `comparison`: what became of each message, and one compaction before and after
- `pressure`, `window`: how full the window is, and what fills it, by kind of content
- `changes`: undo, pin and unpin
- `status`: where a running agent stands
- `display`: money, times and counts as people read them, and text without secrets
"""
