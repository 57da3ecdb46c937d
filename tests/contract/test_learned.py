"""What is learned about models is there again after a restart, in every store."""

from __future__ import annotations

import random

import pytest
from store_talk import started

from penstock.engine.compressor import ContextCompressor
from penstock.engine.learned import Learned, notes_for
from penstock.errors import ErrorClass, ErrorKind
from penstock.measure.calibration import Calibration
from penstock.providers.classify import classify_error
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.stores.values import NewSession

OVERFLOW = {
    "error": {
        "message": "This model's maximum context length is 16385 tokens. However, your messages resulted in 20000 tokens.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}


def talk(rounds, first=0):
    return [
        {"role": ("user", "assistant")[n % 2], "content": f"Part {n}: " + f"some words about item_{n} " * 30}
        for n in range(first, first + rounds)
    ]


class TestLearned:
    def test_calibrations_are_kept_by_model_and_endpoint(self, store):
        learned = Learned(store)
        assert learned.calibration("m", "here") == Calibration()
        after = learned.observe("m", "here", 10_000, 11_700)
        assert after.ratio == pytest.approx(1.17)
        assert Learned(store).calibration("m", "here") == after
        assert Learned(store).calibration("m", "there") == Calibration()
        assert Learned(store).calibration("n", "here") == Calibration()

    def test_each_builds_on_what_the_other_learned(self, store):
        one, other = Learned(store), Learned(store)
        for learned in (one, other, one, other):
            learned.observe("m", "", 10_000, 11_000)
        assert one.calibration("m").samples == 4

    @pytest.mark.parametrize("note", [b"", b"{", b'{"ratio": "high"}', b"\xff\x00"])
    def test_what_another_version_wrote_is_as_good_as_nothing(self, store, note):
        learned = Learned(store)
        for name in ("calibration", "window"):
            store.put_note(name, "model:m@", note)
        assert learned.calibration("m") == Calibration()
        assert learned.window("m") is None
        assert learned.observe("m", "", 10_000, 11_000).samples == 1

    def test_windows_are_what_a_provider_stated(self, store):
        learned = Learned(store)
        learned.learn_window("m", "", 16_385)
        for impossible in (0, -5, 1_023, 10_000_001):
            learned.learn_window("m", "", impossible)
        assert Learned(store).window("m") == 16_385
        learned.accept_prompt("m", "", 16_385)
        assert learned.window("m") == 16_385
        learned.accept_prompt("m", "", 16_386)  # the provider takes more by now
        assert Learned(store).window("m") is None

    def test_notes_go_with_their_conversation_and_what_is_known_of_models_stays(self, store):
        started(store, "model:m@")  # as odd an id as there may be
        learned = Learned(store)
        learned.observe("m", "x", 10_000, 11_000)
        started(store, "a")
        notes = notes_for(store, "a", lambda text: text.replace("hunter2", "[REDACTED]"))
        notes.put("digest", "the password is hunter2, é")
        assert notes.get("digest") == "the password is [REDACTED], é"
        assert notes_for(store, "a", str).get("digest") == "the password is [REDACTED], é"
        assert notes.get("other") is None
        store.branch("a", 0, NewSession(id="b", at=2.0))
        assert notes_for(store, "b", str).get("digest") is not None  # it is on what they share
        store.delete("a")
        assert notes_for(store, "a", str) is None
        assert notes_for(store, "b", str).get("digest") is None
        store.delete("model:m@")
        assert learned.calibration("m", "x").samples == 1

    def test_a_store_that_cannot_be_reached_stops_nobody(self, tmp_path, caplog):
        store = open_store(f"sqlite:///{tmp_path}/s.db")
        started(store, "a")
        learned, notes = Learned(store), notes_for(store, "a", str)
        store.close()
        assert learned.calibration("m") == Calibration()
        assert learned.observe("m", "", 1_000, 1_100).ratio == pytest.approx(1.1)
        learned.learn_window("m", "", 9_000)
        assert learned.window("m") == 9_000  # as long as this process lives
        notes.put("digest", "x")
        assert notes.get("digest") == "x"
        assert "could not be read or kept" in caplog.text


class TestSession:
    def test_a_request_is_booked_with_its_cost(self, store):
        session = Session.create(store, model="gpt-4.1")
        row = session.record_usage({"prompt_tokens": 1_000, "completion_tokens": 100})
        assert row.cost == pytest.approx(1_000 * 2 / 1e6 + 100 * 8 / 1e6)
        session.record_usage({"prompt_tokens": 10}, model="unheard-of", task="summary")
        first, second = store.usage(session_id=session.id)
        assert (first, second.cost, second.task) == (row, None, "summary")

    @pytest.mark.parametrize("off", [0.85, 1.17, 1.45])
    def test_after_three_responses_the_estimate_is_within_three_percent(self, store, off):
        """A provider that counts otherwise, with some noise, seen by one process after the other."""
        noise = random.Random(3)
        tools = [
            {
                "type": "function",
                "function": {"name": "look", "description": "Look. " * 200, "parameters": {}},
            }
        ]
        session = Session.create(store, model="some-model")
        for turn in range(3):
            session.append(talk(8, 8 * turn))
            counted = session.count(tools=tools)
            session.record_usage(
                {"prompt_tokens": round(counted * off * noise.uniform(0.985, 1.015))}, counted
            )
            session = Session.resume(store, session.id)
        session.append(talk(30, 100))
        estimate = session.estimate(tools=tools)
        assert estimate == pytest.approx(session.count(tools=tools) * off, rel=0.03)
        elsewhere = Session.resume(store, session.id)
        elsewhere.endpoint = "http://127.0.0.1:1/v1"
        assert elsewhere.estimate(tools=tools) == session.count(tools=tools)

    def test_the_last_report_wins_over_an_estimate_until_the_prompt_is_another(self, store):
        session = Session.create(store, model="some-model")
        session.append(talk(40))
        counted = session.count()
        session.record_usage({"prompt_tokens": counted + 5_000}, counted)
        assert session.estimate() == counted + 5_000
        session.append(talk(2, 40))
        assert session.estimate() > counted + 5_000
        session.compact(target_tokens=1_000)
        assert session.estimate() < 3_000

    def test_a_window_that_an_error_states_is_known_to_the_next_process(self, store):
        session = Session.create(store, model="some-model")
        assert (session.window.tokens, session.window.source) == (128_000, "default")
        assert session.learn_window(classify_error(400, OVERFLOW))
        assert not session.learn_window(ErrorClass(kind=ErrorKind.OVERLOAD, message="busy"))
        again = Session.resume(store, session.id)
        assert (again.window.tokens, again.window.source) == (16_385, "learned")
        configured = Session.resume(store, session.id, settings_from({"model": {"context_length": 50_000}}))
        assert (configured.window.tokens, configured.window.source) == (16_385, "config")
        again.append(talk(200))
        result = again.compact()
        assert result.receipt.outcome == "compacted"
        assert result.receipt.target_tokens < 16_385
        again.record_usage({"prompt_tokens": 17_000})
        assert again.window.source == "default"


class TestCompressor:
    def test_it_learns_from_what_the_prompt_grows_by(self, store):
        """What stands beside the messages, tools and system prompt, is in every report and teaches nothing."""
        engine = ContextCompressor(model="some-model", store=store)
        messages = []
        for turn in range(5):
            messages += talk(6, 6 * turn)
            counted = ContextCompressor(model="some-model").estimate(messages)
            engine.estimate(messages)
            engine.update_from_response({"prompt_tokens": round(20_000 + 1.3 * counted)})
        fresh = ContextCompressor(model="some-model", store=store)
        assert fresh.estimate(messages) == pytest.approx(1.3 * counted, rel=0.01)
        more = [*messages, *talk(6, 50)]
        grown = ContextCompressor(model="some-model").estimate(more)
        assert engine.estimate(more) == pytest.approx(20_000 + 1.3 * grown, rel=0.01)

    def test_a_compaction_or_another_model_is_no_growth(self, store):
        engine = ContextCompressor(model="some-model", store=store)
        messages = talk(60)
        engine.estimate(messages)
        engine.update_from_response({"prompt_tokens": 10_000})
        smaller = engine.compact(messages, target_tokens=1_000).messages
        engine.estimate([*smaller, *talk(4, 60)])
        engine.update_from_response({"prompt_tokens": 9_999_999})
        engine.update_model("another-model", 100_000)
        engine.estimate([*smaller, *talk(8, 60)])
        engine.update_from_response({"prompt_tokens": 5})
        assert Learned(store).calibration("some-model") == Calibration()
        assert Learned(store).calibration("another-model") == Calibration()
