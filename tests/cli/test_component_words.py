"""Words after a verb: settings as name=value, and as options."""

import pytest

from posttrain.cli._component import options_as_settings
from posttrain.errors import UserError


def test_options_are_settings() -> None:
    assert options_as_settings(["MODEL", "tasks=a.jsonl", "--entropy", "0.3", "--max-tokens=8", "-1"]) == [
        "MODEL",
        "tasks=a.jsonl",
        "entropy=0.3",
        "max_tokens=8",
        "-1",
    ]


@pytest.mark.parametrize("words", [["--entropy"], ["--entropy", "--other", "1"]])
def test_an_option_without_a_value_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError, match="--entropy has no value"):
        options_as_settings(words)
