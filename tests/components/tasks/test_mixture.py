import json
from pathlib import Path

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.countdown import Countdown
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.mixture import Mixture
from posttrain.errors import UserError


def test_order_by_hand() -> None:
    """With shares 2 and 1, a stands at 1/4, 3/4, 5/4, ... and b at 1/2, 3/2, ..."""
    mixture = Mixture(sources={"a": Arithmetic(size=4), "b": Arithmetic(size=9, seed=5)}, shares={"a": 2, "b": 1})
    assert [task.key[0] for task in mixture.load()] == ["a", "b", "a", "a", "b", "a"]


def test_shares_hold_in_every_prefix() -> None:
    shares = {"a": 0.5, "b": 0.3, "c": 0.2}
    sources = {name: Arithmetic(size=200, seed=seed) for seed, name in enumerate(shares)}
    names = [task.key[0] for task in Mixture(sources=sources, shares=shares).load()]
    assert len(names) == 400, "a, of which half are, ends at 200"
    for length in range(1, len(names) + 1):
        for name, share in shares.items():
            assert abs(names[:length].count(name) - share * length) <= 1.5


def test_without_shares_everything_is_used() -> None:
    mixture = Mixture(sources={"small": Arithmetic(size=10), "large": Countdown(size=30)})
    keys = [task.key for task in mixture.load()]
    assert len(keys) == len(set(keys)) == 40
    assert [key.split("/")[0] for key in keys].count("small") == 10
    assert any(key.startswith("small/") for key in keys[:5]) and any(key.startswith("small/") for key in keys[-5:])


def test_a_large_source_does_not_crowd_out_a_small_one() -> None:
    """The first five of 90, and all three of the other, spread over the order."""
    sources = {"large": Arithmetic(size=90), "small": Arithmetic(size=3, seed=5)}
    mixture = Mixture(sources=sources, most=5)
    keys = [task.key for task in mixture.load()]
    assert [key.split("/")[0] for key in keys].count("small") == 3 and len(keys) == 8
    assert {key for key in keys if key.startswith("large/")} == {
        f"large/{task.key}" for task in Arithmetic(size=90).load()[:5]
    }
    assert "large: 5 of 90 tasks" in mixture.describe()


def test_growing_a_source_keeps_the_prefix() -> None:
    def mixed(size: int) -> list[str]:
        sources = {"a": Arithmetic(size=size), "b": Countdown(size=size)}
        return [task.key for task in Mixture(sources=sources, shares={"a": 3, "b": 2}).load()]

    assert mixed(50)[: len(mixed(20))] == mixed(20)


def test_the_same_problem_in_two_sources_has_two_keys() -> None:
    keys = [task.key for task in Mixture(sources={"a": Arithmetic(size=5), "b": Arithmetic(size=5)}).load()]
    assert len(set(keys)) == 10


def test_domains(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps({"prompt": "Hi", "answer": "there"}) + "\n")
    mixture = Mixture(sources={"mine": Files(path=str(tmp_path / "mine.jsonl")), "made": Countdown(size=3)})
    domains = {task.domain for task in mixture.load()}
    assert "mine" in domains and domains - {"mine"} <= {"3 numbers", "4 numbers"}


def test_describe_states_how_much_of_each() -> None:
    text = Mixture(sources={"a": Arithmetic(size=5), "b": Arithmetic(size=9)}, shares={"a": 1, "b": 1}).describe()
    assert "mixture: 10 tasks" in text
    assert "a: 5 of 5 tasks" in text and "b: 5 of 9 tasks" in text


@pytest.mark.parametrize(
    ("mixture", "message"),
    [
        (Mixture(sources={}), "tasks.sources is empty"),
        (Mixture(sources={"a": Arithmetic()}, shares={"b": 1}), "'b', which is no source; known: a"),
        (Mixture(sources={"a": Arithmetic(), "b": Countdown()}, shares={"a": 1}), "no share for 'b'"),
        (Mixture(sources={"a/b": Arithmetic()}), "cannot hold a '/'"),
    ],
)
def test_errors(mixture: Mixture, message: str) -> None:
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        mixture.load()


def test_domains_of_sources() -> None:
    """Where results are wanted by source, a task's own domain is replaced."""
    sources = {"made": Countdown(size=3), "sums": Arithmetic(size=3)}
    assert {task.domain for task in Mixture(sources=sources, domains="source").load()} == {"made", "sums"}
