import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SettingsError
from penstock.measure.tokens import _FirstCounts, _load_truncate, tokenizer_for, tokenizer_named

REFERENCE = json.loads((Path(__file__).parent / "reference_counts.json").read_text(encoding="utf-8"))
ENCODINGS = ("o200k_base", "cl100k_base")
# What encodings split words by, beside any other character: case, digits, blanks, marks, contractions.
MIXED = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("aAzZ019 \n\r\t'ſsStTrReEdD.,-_/*()<|>é中한👍\u0301\u200d\xa0"),
)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: row["name"])
def test_a_count_is_that_of_the_reference_implementation(row, encoding):
    assert tokenizer_named(encoding).count(row["text"]) == row[encoding]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("copies", [1, 2, 400])
def test_a_batch_of_any_size_counts_like_single_texts(encoding, copies):
    # One copy is counted one by one, two as a batch, 400 copies (over 500,000 characters) on threads.
    texts = [row["text"] for row in REFERENCE] * copies
    expected = [row[encoding] for row in REFERENCE] * copies
    assert tokenizer_named(encoding).count_many(texts) == expected


def test_no_texts_give_no_counts():
    assert tokenizer_named("o200k_base").count_many([]) == []


@pytest.mark.parametrize("encoding", [*ENCODINGS, "utf8-bytes"])
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc00\ud800", "né\ud83d"])
def test_lone_surrogates_count_as_the_replacement_character(encoding, text):
    tokenizer = tokenizer_named(encoding)
    replaced = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    if encoding == "utf8-bytes":
        assert tokenizer.count(text) > 0
    else:
        assert tokenizer.count(text) == tokenizer.count(replaced)
        assert tokenizer.count_many([text] * 100) == [tokenizer.count(replaced)] * 100


def test_a_surrogate_pair_in_two_halves_counts_as_its_character():
    tokenizer = tokenizer_named("o200k_base")
    assert tokenizer.count("\ud83d\ude00") == tokenizer.count("😀")


def test_special_tokens_in_text_are_text():
    assert tokenizer_named("o200k_base").count("<|endoftext|>") > 1


@pytest.mark.parametrize(
    ("model", "encoding", "exact"),
    [
        (None, "o200k_base", True),
        ("", "o200k_base", True),
        ("gpt-4", "cl100k_base", True),
        ("gpt-4-0613", "cl100k_base", True),
        ("gpt-4-turbo-2024-04-09", "cl100k_base", True),
        ("gpt-3.5-turbo", "cl100k_base", True),
        ("gpt-35-turbo", "cl100k_base", True),
        ("text-embedding-3-large", "cl100k_base", True),
        ("gpt-4o", "o200k_base", True),
        ("GPT-4o-mini", "o200k_base", True),
        ("chatgpt-4o-latest", "o200k_base", True),
        ("gpt-4.1-nano", "o200k_base", True),
        ("gpt-5", "o200k_base", True),
        ("gpt-5.1-codex", "o200k_base", True),
        ("gpt-oss-120b", "o200k_base", True),
        ("o1", "o200k_base", True),
        ("o3-mini", "o200k_base", True),
        ("o4-mini-high", "o200k_base", True),
        ("openai/gpt-4o", "o200k_base", True),
        ("openrouter/openai/gpt-4", "cl100k_base", True),
        ("ft:gpt-4o-mini:acme::x1", "o200k_base", True),
        ("ft:gpt-3.5-turbo:acme::x1", "cl100k_base", True),
        ("claude-sonnet-4-5", "o200k_base", False),
        ("anthropic/claude-opus-4.1", "o200k_base", False),
        ("gemini-2.5-pro", "o200k_base", False),
        ("llama-3.3-70b", "o200k_base", False),
        ("olmo-2", "o200k_base", False),
        ("a model nobody knows", "o200k_base", False),
    ],
)
def test_each_model_gets_its_tokenizer_or_the_nearest(model, encoding, exact):
    tokenizer = tokenizer_for(model)
    assert (tokenizer.name, tokenizer.exact) == (encoding, exact)


def test_an_unknown_name_is_refused_with_the_names_allowed():
    with pytest.raises(SettingsError, match=r"'p50k'.*cl100k_base, o200k_base, utf8-bytes"):
        tokenizer_named("p50k")


@pytest.mark.outside
def test_the_encoding_is_loaded_by_the_first_count_not_before():
    script = (
        "import sys; from penstock.measure import tokens, weigh, usage, prices, windows\n"
        "t = tokens.tokenizer_for('gpt-4o')\n"
        "heavy = {'toktok', 'splintr', 'genai_prices', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "t.count('x')\n"
        "assert {'toktok', 'splintr'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("text", ["a" * 3_000_000, " " * 3_000_000, "word " * 600_000, "中" * 1_000_000])
def test_one_huge_text_is_counted_in_one_piece(text):
    # Counts double with the text: nothing is cut inside. The time is linear too (docs/adr/0002).
    count = tokenizer_named("o200k_base").count
    assert abs(count(text) - 2 * count(text[: len(text) // 2])) <= 2


class TestTheFirstTextsOfAProcess:
    """They are counted by another wheel, which has to count the same."""

    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_they_count_as_by_the_reference_implementation(self, encoding):
        pytest.importorskip("splintr")
        counter = _FirstCounts(encoding)  # loading one takes a hundred times as long as its counts
        counted = {row["name"]: counter.count_each(row["text"]) for row in REFERENCE}
        assert counted == {row["name"]: [row[encoding]] for row in REFERENCE}

    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_they_count_as_all_later_ones(self, encoding):
        pytest.importorskip("splintr")
        first, later = _FirstCounts(encoding), _load_truncate()

        @given(st.text(MIXED, max_size=30))
        @settings(max_examples=1_000)
        def compare(text):
            assert first.count_each(text) == [later(text, 0, encoding)[1]]

        compare()

    def test_special_tokens_and_lone_surrogates_are_text(self):
        pytest.importorskip("splintr")
        special, lone = _FirstCounts("o200k_base").count_each("<|endoftext|>", "a\ud800b")
        assert special > 1
        assert lone == tokenizer_named("o200k_base").count("a\ufffdb")

    def test_a_long_text_or_many_are_left_to_the_quicker_one_for_good(self):
        assert _FirstCounts("o200k_base").count_each("word " * 100_000) == []
        many = _FirstCounts("o200k_base")
        rounds = [many.count_each(*["word " * 1_000] * 40) for _ in range(7)]
        assert rounds[5:] == [[], []]

    @pytest.mark.outside
    def test_a_process_that_counts_little_loads_the_quicker_to_load_and_others_both(self):
        pytest.importorskip("splintr")
        script = (
            "import sys; from penstock.measure.tokens import tokenizer_for\n"
            "count = tokenizer_for('gpt-4o').count\n"
            "few = count('xqzjkv 4711 ' * 100)\n"
            "assert 'toktok' not in sys.modules\n"
            "count('word ' * 300_000)\n"
            "assert 'toktok' in sys.modules\n"
            "assert count('xqzjkv 4711 ' * 100) == few\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
