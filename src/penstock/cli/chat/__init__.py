"""`penstock chat`: an agent at a terminal, or one turn for a script.

Read `command` first, where a chat begins, and `state`, which holds its agent. Two programs run it: `terminal` talks with a
person, `script` answers once. At the terminal, `input` reads what is typed, `commands` carries out `/compress` and the
others, `view` shows a turn as it happens, with `markdown` for answers that are still being written. `lines` has the
texts that both print, `approval` asks for permission, `model` says which model answers.
"""
