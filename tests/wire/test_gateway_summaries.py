"""Which model writes the gateway's summaries, and with whose key."""

import asyncio
import json

import pytest
from summary_cases import good_handoff

from penstock.gateway.conversations import Conversations
from penstock.gateway.orders import Fit, Fitted, Open, Outside
from penstock.settings import settings_from
from penstock.testing.provider_server import ScriptedProvider

KEY = "sk-of-the-caller-4711"


def talk():
    said = [{"role": "user", "content": "Keep an eye on the shelves."}]
    for turn in range(60):
        said += [
            {"role": "assistant", "content": f"Shelf {turn} holds part {turn * 7}. " * 30},
            {"role": "user", "content": f"And shelf {turn + 1}?"},
        ]
    return tuple(json.dumps(message).encode() for message in said)


@pytest.mark.parametrize("how", ["extractive", "same", "url"])
def test_summaries_are_written_by_whom_the_settings_allow_and_by_nobody_else(how, tmp_path, caplog):
    messages = talk()

    async def whole():
        async with (
            ScriptedProvider([good_handoff()] * 3) as upstream,
            ScriptedProvider([good_handoff()] * 3) as other,
        ):
            settings = settings_from(
                {
                    "store.url": f"sqlite:///{tmp_path}/log.db",
                    "model.context_length": 20_000,
                    "gateway.summarise": f"{other.base_url}/v1" if how == "url" else how,
                }
            )
            conversations = Conversations(settings)
            opened = await conversations.carry_out(
                Open(
                    owner="ann",
                    dialect="chat",
                    endpoint=f"{upstream.base_url}/v1",
                    store="full",
                    messages=messages[:-2],
                    outside=Outside(model="gpt-4.1"),
                )
            )
            fit = Fit(
                conversation=opened.conversation,
                length=len(messages) - 2,
                messages=messages[-2:],
                outside=None,
                credential=KEY,
                target_tokens=6_000,
            )
            fitted = await conversations.carry_out(fit)
            await conversations.aclose()
            return fitted, upstream.received, other.received

    fitted, asked, asked_other = asyncio.run(whole())
    assert isinstance(fitted, Fitted)
    assert fitted.compacted
    assert bool(asked) == (how == "same")
    assert bool(asked_other) == (how == "url")
    assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in asked)
    assert not any(KEY in str(request.headers) for request in asked_other)
    assert KEY not in caplog.text
    assert not any(KEY.encode() in file.read_bytes() for file in tmp_path.iterdir())
