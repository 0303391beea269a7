"""The guard's loss, what a round makes of candidates, and the label filter."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from posttrain.components.rewards.same_words import SameWords
from posttrain.components.tasks.disguised import Disguised
from posttrain.datasets.disguises import disguised, keeps
from posttrain.errors import UserError
from posttrain.methods.multi_agent.duoguard import duoguard
from posttrain.stages.guard_rounds import GuardRounds, guard_loss, wanted
from posttrain.types import Group, Score, Segment, Task, Trajectory


def test_the_loss_by_hand_and_by_differences() -> None:
    """Outputs log 2, log 3, 0 with the second wanted: log(1 + 2 + 1) + log(1 + 1/3). Safe: log(1 + 2 + 3 + 1)."""
    score_NK = torch.tensor([[math.log(2), math.log(3), 0.0]] * 2, dtype=torch.float64)
    wanted_NK = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    found = guard_loss(score_NK, wanted_NK).tolist()
    assert found == pytest.approx([math.log(4) + math.log(4 / 3), math.log(7)])
    assert torch.autograd.gradcheck(lambda x: guard_loss(x, wanted_NK), score_NK.requires_grad_())
    huge = guard_loss(torch.tensor([[1e4, -1e4]]), torch.tensor([[0.0, 1.0]]))
    assert huge.tolist() == [2e4], "stable, and only the worst outputs count"


def test_a_text_keeps_its_categories_with_the_same_words_in_any_form() -> None:
    assert disguised("arson", "backwards") == "nosra" and disguised("arson", "voiceless") == "arsn"
    assert keeps(["arson", "red"], "red nosra") and keeps(["arson", "red"], "rd arson")
    assert not keeps(["arson", "red"], "red tree") and not keeps(["arson", "red"], "red nosra arson")
    assert not keeps(["red", "red"], "red blue")


class Reader(GuardRounds):
    """Reads a loss and a verdict from the text itself."""

    def verdicts(self, guard: object, texts: object) -> list[tuple[float, bool]]:
        return [(float(text.split()[0]), text.endswith("right")) for text, _ in texts]  # type: ignore[attr-defined]


def candidates(*texts: str, key: str = "a") -> Group:
    task = Task(key=key, prompt="p", fields={"text": "t", "categories": [0]})
    return Group(
        key=key,
        trajectories=tuple(
            Trajectory(
                task=task,
                segments=(Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=f" {text}"),),
                stop_reason="stop",
                score=Score(value=1.0, status="wrong" if "flipped" in text else "ok"),
            )
            for text in texts
        ),
    )


def test_the_hardest_wrong_one_is_preferred_to_the_easiest_right_one() -> None:
    stage = duoguard().stages["rounds"]
    assert isinstance(stage, GuardRounds)
    reader = Reader(**{name: getattr(stage, name) for name in stage.__dataclass_fields__})
    metrics: dict[str, float] = {}
    some = [
        candidates("3 wrong", "5 wrong", "1 right", "2 right", "9 flipped wrong"),
        candidates("1 right", "2 right", key="b"),
        candidates("4 wrong", "4 wrong", "7 as long as its context wrong", key="c"),
    ]
    guard = SimpleNamespace(tokenizer=SimpleNamespace(encode=list), context=20)
    pairs, fooled = reader._chosen(some, {"guard": guard}, metrics)  # type: ignore[dict-item]
    assert [(p.chosen, p.rejected, p.fields["margin"]) for _, p in pairs] == [(" 5 wrong", " 1 right", 4.0)]
    assert sorted(t.completion for t in fooled) == [" 3 wrong", " 4 wrong", " 5 wrong"], (
        "each once, none that is flipped or too long"
    )
    assert metrics == {"kept": pytest.approx(8 / 10), "fooled": pytest.approx(4 / 8), "pairs": 1.0}


def test_categories_that_no_output_is_for_and_seeds_without_them_are_refused() -> None:
    assert wanted([("a", [1]), ("b", [])], 2).tolist() == [[0.0, 1.0], [0.0, 0.0]]
    with pytest.raises(UserError, match="outputs 0 to 1"):
        wanted([("a", [2])], 2)
    stage = duoguard().stages["rounds"]
    assert isinstance(stage, GuardRounds)
    with pytest.raises(UserError, match="is no seed"):
        stage.seed_of(Task(key="t", prompt="p", fields={"text": "x"}))
    with pytest.raises(UserError, match="no list of words"):
        SameWords().check([Task(key="t", prompt="p")])


def test_half_of_the_seeds_are_safe_and_every_demonstration_keeps_its_words() -> None:
    tasks = Disguised(size=40).load()
    assert sum(not t.fields["categories"] for t in tasks) == 20
    assert all(keeps(t.fields["words"], t.demonstrations[0]) for t in tasks)
    assert all(keeps(t.fields["words"], t.fields["text"]) for t in Disguised(size=9, which="voiceless").load())
