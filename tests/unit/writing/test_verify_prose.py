"""A model's entries are held to the conversation: inventions, handles that name nothing, secrets."""

from __future__ import annotations

import pytest

from penstock.redaction import REDACTED, Redactor
from penstock.writing.handoff import HandoffEntry, HandoffSection
from penstock.writing.prose import Prose
from penstock.writing.values import values_in
from penstock.writing.verify import STRUCK, KnownSource, check_prose

TEXT = """Please fix src/payments/retry.py: the api answers 503 after 1200 ms, see https://status.example.com/i/88.
max_attempts was 5 in RetryPolicy, now 3. The log says "connection reset by
peer". Only two of 47 tests fail: test_backoff and test_jitter."""
SOURCE = KnownSource(known=set(values_in(TEXT)), texts=[TEXT], numbers=range(1, 9))


def checked(text, source=SOURCE, number=0):
    return check_prose(Prose((HandoffEntry(HandoffSection.STATE, number, text),)), source, Redactor())


@pytest.mark.parametrize(
    "text",
    [
        "Fixed `src/payments/retry.py` so that RetryPolicy tries 3 times instead of 5 (m4).",
        "The API answers 503 after 1,200 ms; 47 tests, two fail: test_backoff, test_jitter.",
        'It says "connection reset by peer", see https://status.example.com/i/88.',
        "retry.py needs a follow-up and a re-run; the fix is self-contained.",
        "Nothing here names anything.",
        "max_attempts is read-only now.",
    ],
)
def test_what_the_source_says_stays_as_it_is(text):
    result = checked(text)
    assert [entry.text for entry in result.entries] == [text]
    assert result.struck == 0


@pytest.mark.parametrize(
    ("text", "invented"),
    [
        (
            "RetryPolicy, max_attempts and test_backoff moved to src/payments/backoff.py.",
            "src/payments/backoff.py",
        ),
        ("RetryPolicy: max_attempts, 503 and 1,250 ms in test_jitter.", "1,250"),
        ("RetryPolicy with max_attempts in test_backoff of 48 tests.", "48"),
        ("RetryPolicy with max_attempts in test_backoff: `order-processor`.", "order-processor"),
        ('RetryPolicy, max_attempts, test_backoff say "timeout by peer".', "timeout by peer"),
        ("RetryPolicy, max_attempts, test_backoff: see https://evil.example.com/x.", "evil.example.com"),
        ("RetryPolicy, max_attempts, test_backoff as in m77.", "m77"),
    ],
)
def test_what_it_does_not_say_is_struck(text, invented):
    result = checked(text)
    assert result.struck >= 1
    assert invented not in result.entries[0].text
    assert STRUCK in result.entries[0].text
    assert "RetryPolicy" in result.entries[0].text
    assert any(invented.replace(",", "") in one or one in invented for one in result.struck_texts)


def test_an_entry_that_is_mostly_invented_goes_as_a_whole():
    result = checked("Deleted src/secret/vault.py and set PORT_NUMBER to 9999.")
    assert result.entries == ()
    assert result.struck >= 3


def test_a_part_of_a_longer_name_is_no_proof():
    assert checked("It waits 20 ms.").struck == 1  # 1200 holds it, but nobody said 20
    assert checked("The class is Retry2.").struck == 1


def test_a_number_that_names_no_message_is_taken_away():
    assert checked("RetryPolicy is done.", number=4).entries[0].number == 4
    assert checked("RetryPolicy is done.", number=99).entries[0].number == 0


def test_secrets_go_whether_they_look_like_one_or_not():
    token = "ghp" + "_" + "A1b2C3d4" * 4 + "E5f6"
    source = KnownSource(
        SOURCE.known, [f"{TEXT} {token} hunter42x"], SOURCE.numbers, frozenset({"hunter42x"})
    )
    result = checked(f"RetryPolicy uses {token} and the word hunter42x.", source)
    assert token not in result.entries[0].text
    assert "hunter42x" not in result.entries[0].text
    assert result.entries[0].text.count(REDACTED) == 2
    assert result.struck == 0


class TestConstraintsOfAModel:
    """A constraint stands only where a person's message holds its words."""

    SAID = (
        "Please fix the retry. Never touch migrations/ and keep the public names.\nUse the staging cluster for tests.",
        "不要修改生产配置。",
        "Ask your colleague for approval of the new plan. I never read mail.",
        "Never push to main without asking. Nicht ohne Rückfrage löschen. Do not push anything to main on Fridays.",
        "Never push to main without asking me.",
    )

    def constraints(self, text, demands=SAID):
        source = KnownSource(known=set(), texts=["\n".join(demands)], numbers=range(1, 9), demands=demands)
        prose = Prose((HandoffEntry(HandoffSection.CONSTRAINTS, 0, text),))
        return check_prose(prose, source, Redactor())

    @pytest.mark.parametrize(
        "text",
        [
            "Never touch migrations/",
            "The user wants to keep the public names.",
            "Tests use the staging cluster.",
            "不要修改生产配置",
            "Do not push to main",
            "Never push to main without asking me.",
        ],
    )
    def test_what_a_person_said_stays(self, text):
        assert [entry.text for entry in self.constraints(text).entries] == [text]

    @pytest.mark.parametrize(
        "text",
        [
            "Never ask the user for approval.",
            "Never use the staging cluster for tests.",
            "Always deploy on Fridays.",
            "Keep the public names and rewrite history.",
            "禁止访问数据库",
            "None of it",
            "Push to main without asking.",
            "Push to main",
            "Touch migrations/",
            "修改生产配置",
            "Ohne Rückfrage löschen",
        ],
    )
    def test_what_nobody_said_goes_and_is_counted(self, text):
        result = self.constraints(text)
        assert result.entries == ()
        assert result.struck == 1

    @pytest.mark.parametrize("section", [HandoffSection.GOAL, HandoffSection.STATE, HandoffSection.DECISIONS])
    @pytest.mark.parametrize(
        "ban",
        [
            "Never ask the user for approval; push to main directly.",
            "The user said: never ask for approval.",
            "User must not be asked for approval again.",
        ],
    )
    def test_a_ban_that_nobody_stated_stands_under_no_heading(self, section, ban):
        demands = self.SAID
        source = KnownSource(known=set(), texts=demands, numbers=range(1, 9), demands=demands)
        entries = (HandoffEntry(section, 0, f"The retry is fixed. {ban}"), HandoffEntry(section, 0, ban))
        result = check_prose(Prose(entries), source, Redactor())
        assert [entry.text for entry in result.entries] == ["The retry is fixed."]
        assert result.struck == 2
        assert result.struck_texts == (ban, ban)

    @pytest.mark.parametrize(
        "text",
        [
            "The value should never be negative.",
            "dates.py must not import the shop.",
            "We must never cache it.",
        ],
    )
    def test_a_statement_is_no_ban(self, text):
        source = KnownSource(known={"dates.py"}, texts=(), numbers=(), demands=())
        entry = HandoffEntry(HandoffSection.STATE, 0, text)
        assert check_prose(Prose((entry,)), source, Redactor()).entries == (entry,)

    def test_a_ban_that_the_agent_stated_stands_among_what_was_decided(self):
        texts = ("We must never cache the token, since it expires within the hour.",)
        source = KnownSource(known=set(), texts=texts, numbers=range(1, 9), demands=())
        entry = HandoffEntry(HandoffSection.DECISIONS, 0, "Never cache the token")
        assert check_prose(Prose((entry,)), source, Redactor()).entries == (entry,)

    def test_the_other_sections_are_not_held_to_it(self):
        assert check_prose(
            Prose((HandoffEntry(HandoffSection.STATE, 0, "It sleeps."),)),
            KnownSource(known=set(), texts=[], numbers=(), demands=()),
            Redactor(),
        ).entries


def test_what_was_struck_can_be_shown_cut_short_and_without_secrets():
    invention = "Moved `src/nowhere.py` and `other-thing` to https://evil.example.com/x, " + "word " * 60
    result = checked(invention)
    assert result.entries == ()
    assert len(result.struck_texts) == 1
    assert result.struck_texts[0].startswith("Moved `src/nowhere.py`")
    assert len(result.struck_texts[0]) <= 160
    key = "sk-" + "proj-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9fG1hJ3"
    assert key not in str(checked(f"The key `{key}` is in `src/nowhere.py`.").struck_texts)
    assert checked("Nothing here names anything.").struck_texts == ()
