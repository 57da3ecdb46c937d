import pytest

from penstock.conversation.message import Image
from penstock.measure.weigh import UNKNOWN_SIZE_TOKENS, count_image_tokens


def picture(width=0, height=0):
    return Image("image/png", 1, "d", width=width, height=height)


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        ("claude-sonnet-4-5", 1000, 750, 1000),
        ("anthropic/claude-opus-4.1", 200, 200, 54),
        ("claude-sonnet-4-5", 4000, 4000, 1600),
        ("claude-sonnet-4-5", 30_000, 10, 2),  # scaled to 1,568 × 0.5
        ("gpt-4o", 512, 512, 85 + 170),
        ("gpt-4o", 1024, 1024, 85 + 4 * 170),
        ("gpt-4o", 2048, 4096, 85 + 6 * 170),
        ("gpt-4o", 1, 100_000, 85 + 4 * 170),
        ("openai/gpt-4o-mini", 512, 512, 2_833 + 5_667),
        ("gpt-5", 1024, 1024, 70 + 4 * 140),
        ("o3", 512, 512, 75 + 150),
        ("gpt-4o", 0, 0, 85 + 8 * 170),
        ("claude-sonnet-4-5", 0, 0, UNKNOWN_SIZE_TOKENS),
        (None, 0, 0, UNKNOWN_SIZE_TOKENS),
        (None, 1000, 750, 1000),
        (None, 100, 100, 85 + 170),
        ("a model nobody knows", 1024, 1024, 1399),
    ],
)
def test_the_size_rules(model, width, height, tokens):
    assert count_image_tokens(picture(width, height), model) == tokens


def test_without_a_model_no_family_is_undercounted():
    for width, height in [(64, 64), (640, 480), (1024, 1024), (3000, 500), (9000, 9000)]:
        one = picture(width, height)
        assert count_image_tokens(one) >= max(
            count_image_tokens(one, "claude-x"), count_image_tokens(one, "gpt-4o")
        )
