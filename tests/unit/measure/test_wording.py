import pytest

from penstock.measure.wording import format_share


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0%"),
        (0.000_2, "<1%"),
        (0.004_9, "<1%"),
        (0.005_1, "1%"),
        (0.184, "18%"),
        (1.0, "100%"),
        (1.2, "120%"),
    ],
)
def test_a_share_that_is_little_is_not_nothing(share, text):
    assert format_share(share) == text
