"""Generated agent conversations for the benchmarks, and a small measure of what a compaction of them loses.

The same arguments give the same conversation on every machine. All words and names are our own. Sizes, roles and
repetition follow what recorded sessions look like: half the messages are tool results with two thirds to three
quarters of the text, most of them short and a few very long, one line in six said before.
"""

from benchmarks.needles import Needle, Recall, cut_at, needles, recalled
from benchmarks.sessions.coding import coding_session, many_messages, window_200k
from benchmarks.sessions.service import service_session
from benchmarks.sessions.transcript import message_tokens

__all__ = [
    "Needle",
    "Recall",
    "coding_session",
    "cut_at",
    "many_messages",
    "message_tokens",
    "needles",
    "recalled",
    "service_session",
    "window_200k",
]
