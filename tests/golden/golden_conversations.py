"""Two small conversations that never change: a coding agent's and a customer service agent's."""

from __future__ import annotations

import json


def _call(call_id, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def _result(call_id, text):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _user(text):
    return {"role": "user", "content": text}


def _assistant(text):
    return {"role": "assistant", "content": text}


_QUEUE = "\n".join(
    f"{n:>5}\t{line}"
    for n, line in enumerate(
        [
            "import time",
            "from collections import deque",
            "",
            "RETRY_LIMIT = 5",
            "BACKOFF_SECONDS = 0.25",
            "",
            "class RetryQueue:",
            '    """Jobs that failed and are tried again."""',
            "",
            "    def __init__(self, store, clock=time.monotonic):",
            "        self.store = store",
            "        self.clock = clock",
            "        self.waiting = deque()",
            "",
            "    def push(self, job_id, attempt=0):",
            "        if attempt >= RETRY_LIMIT:",
            "            self.store.mark_dead(job_id)",
            "            return",
            "        due = self.clock() + BACKOFF_SECONDS * 2 ** attempt",
            "        self.waiting.append((due, job_id, attempt))",
            "",
            "    def pop_due(self):",
            "        while self.waiting and self.waiting[0][0] <= self.clock():",
            "            yield self.waiting.popleft()",
            *(f"    def legacy_{n}(self): return self.store.legacy_{n}()" for n in range(30)),
        ],
        start=1,
    )
)
_TESTS = "\n".join(
    [
        "collected 14 items",
        *(f"tests/test_queue.py::test_case_{n} PASSED" for n in range(12)),
        "tests/test_queue.py::test_backoff_order FAILED",
        "tests/test_queue.py::test_dead_letter PASSED",
        "E   AssertionError: assert ['job-7', 'job-3'] == ['job-3', 'job-7']",
        "E   waiting is not sorted by due time after push('job-7', attempt=2)",
        "1 failed, 13 passed in 0.42s",
        "exit code 1",
    ]
)
_LONG_LOG = "\n".join(
    f"2024-05-0{1 + n % 7} 10:{n % 60:02}:00 worker-{n % 3} job-{n} retried {n % 5} times" for n in range(140)
)

_STEPS = [
    f"Step {n}: I read module_{n}.py and it calls RetryQueue.push with attempt={n}. "
    f"We decided to keep worker-{n} on the old path because schema v{n}.2 is not out yet. "
    + f"The caller waits {n * 150} ms, then asks the store for job-{n * 11} and writes audit_{n}.log again. "
    * 3
    for n in range(1, 13)
]

CODING = [
    {"role": "system", "content": "You are a coding agent. Look before you change."},
    _user(
        "Fix the order of retries in worker/queue.py. Never touch migrations/. Run make test before you say done."
    ),
    _call("c1", "read_file", path="worker/queue.py"),
    _result("c1", _QUEUE),
    _call("c2", "terminal", command="make test"),
    _result("c2", _TESTS),
    _assistant(
        "The root cause is that push appends, so waiting is not sorted by due time. I will use a heap."
    ),
    _call(
        "c3", "terminal", command="curl -H 'Authorization: Bearer " + "k9" * 20 + "' https://ci.example/logs"
    ),
    _result("c3", _LONG_LOG),
    _call(
        "c4",
        "apply_patch",
        input="*** Begin Patch\n*** Update File: worker/queue.py\n@@\n-deque\n+heapq\n*** End Patch",
    ),
    _result("c4", "Done!"),
    _call("c5", "terminal", command="make test"),
    _result("c5", "14 passed in 0.40s\nexit code 0"),
    _assistant("All 14 tests pass now. Shall I also sort the dead letters?"),
    *(message for step in _STEPS for message in (_user("Go on."), _assistant(step))),
    _user("Yes, and keep RETRY_LIMIT at 5."),
    _call("c6", "read_file", path="worker/dead_letters.py"),
    _result("c6", "def dead_letters(store):\n    return list(store.dead())\n"),
    _user("Also name the function sorted_dead_letters."),
]

_ORDERS = json.dumps(
    {
        "customer_id": "C-20417",
        "orders": [
            {
                "order_id": f"#W88{n:03}",
                "status": "delivered" if n % 3 else "pending",
                "total": 19.90 + n,
                "currency": "EUR",
                "items": [{"sku": f"SKU-{400 + n}", "name": "reading lamp", "quantity": 1 + n % 2}],
                "shipping": {"carrier": "north post", "tracking": f"NP{7_000_000 + n * 31}"},
            }
            for n in range(14)
        ],
    }
)

SERVICE = [
    {"role": "system", "content": "You help customers of a lamp shop. Ask before you change an order."},
    _user("Hi, I am Mara. My mail is mara@example.org. Please don't call me, only write."),
    _call("c1", "find_customer", email="mara@example.org"),
    _result("c1", '{"customer_id": "C-20417", "name": "Mara", "since": "2019-04-02", "orders": 14}'),
    _call("c2", "get_orders", customer_id="C-20417"),
    _result("c2", _ORDERS),
    _assistant("I found your 14 orders. Which one is it about?"),
    _user("The lamp of #W88009 has not arrived. Where is it?"),
    _call("c3", "track_parcel", tracking="NP7000279"),
    _result(
        "c3",
        json.dumps(
            {"tracking": "NP7000279", "state": "held at depot", "depot": "Bergen-4", "until": "2024-06-11"}
        ),
    ),
    _assistant("It is held at depot Bergen-4 until 2024-06-11. Shall I have it sent again?"),
    _user("Yes please, to Storgata 12, 0155 Oslo."),
    _call("c4", "resend_parcel", tracking="NP7000279", address="Storgata 12, 0155 Oslo"),
    _result("c4", '{"ok": true, "new_tracking": "NP9114402", "fee": 0.00}'),
    _assistant("It is on its way as NP9114402, at no cost."),
    _user("Thanks. And can I return #W88003?"),
]
