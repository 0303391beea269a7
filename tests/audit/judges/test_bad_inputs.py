"""Bad inputs of judges, reward models and annotators: what is got, what is allowed, why, and what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from posttrain.audit.judges import gold_pairs
from posttrain.audit.judges.calibrating import calibrate
from posttrain.cli import main
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.referenced_model import ReferencedModel
from posttrain.components.search.score_votes import ScoreVotes
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.judge_items import JudgeItems
from posttrain.components.tasks.ranking_items import RankingItems
from posttrain.datasets.judge_prompts import Example, JudgePrompt
from posttrain.errors import UserError
from posttrain.stages.heads import HeadsTraining
from posttrain.types import Task
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all

PAIR = {"prompt": "p", "chosen": "a", "rejected": "b"}


def file(folder: Path, *rows: dict[str, Any]) -> Files:
    """Tasks of rows."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Files(path=str(path))


def heads(folder: Path) -> None:
    stage = HeadsTraining(reducer=Sequences(), labels=("a",), loss="levels", levels=3)
    stage._texts([Task(key="k", prompt="p", demonstrations=("x",), fields={"a": 7})])


def demonstration(_: Path) -> None:
    JudgePrompt(examples=(Example(question="q", response="r", score=11),), scale=(1, 10))


CASES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty text": (
        lambda folder: file(folder, {**PAIR, "chosen": " "}).load(),
        r"rows\.jsonl.*'chosen' is empty; fill it or remove the row",
    ),
    "one candidate": (
        lambda folder: RankingItems(tasks=file(folder, {"prompt": "p", "candidates": ["a"], "gold": [1]})).load(),
        r"an item needs at least two candidates \(texts\) and as many gold scores \(numbers\); got",
    ),
    "no labels": (
        lambda _: gold_pairs([Task(key="k", prompt="p")]),
        r"the gold data has no pair: none of its 1 rows has two answers.*; give rows with the columns prompt, chosen",
    ),
    "no preference": (
        lambda folder: JudgeItems(tasks=file(folder, {"prompt": "p", "answer": "a"})).load(),
        r"none of the tasks has a preference to make an item for a judge of; give columns named chosen and rejected",
    ),
    "a label off the scale of levels": (
        heads,
        r"a is 7, and levels are whole numbers from 0 to 2; change the label, or levels",
    ),
    "a strength off the scale": (
        lambda folder: JudgeItems(tasks=file(folder, {**PAIR, "strength": 7}), label="strength").load(),
        r"the strength of a preference is 1, 2 or 3, not 7.*; correct it, or take label=letter",
    ),
    "a demonstration off the scale": (demonstration, r"a demonstration has a score outside the scale"),
    "more votes than replies": (
        lambda _: ScoreVotes(n=4, meta_role="meta", kept=9),
        r"kept is 9 of n=4 replies: it is at most n, and needs a meta_role",
    ),
    "gold of one class": (
        lambda _: calibrate([(1.0, True, f"p{i}") for i in range(30)], symmetric=False),
        r"all 30 gold labels are of one class, right, so no chance can be fitted; give right and wrong answers",
    ),
    "too few labels": (
        lambda _: calibrate([(1.0, True, "p")], symmetric=True),
        r"a calibration needs at least 20 labels, and 1 can be used; give more gold",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_message_states_what_was_got_and_what_to_do(name: str, tmp_path: Path) -> None:
    call, message = CASES[name]
    with pytest.raises((UserError, ValidationError), match=f"(?s){message}"):
        call(tmp_path)


def test_a_rating_off_the_scale_is_refused_before_a_judge_is_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file(tmp_path, *({"prompt": "p", "completion": f"{i}", "answer": "1", "rating": i} for i in range(3)))
    assert main(["calibrate", "match", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "c.json")]) == 2
    found = " ".join(capfd.readouterr().err.split())
    assert "a rating for calibration is 1 (right) or 0 (wrong), not 2; it is not cut to that scale" in found


def test_a_candidate_beyond_the_limit_keeps_its_first_characters_and_is_counted() -> None:
    class Length(ScriptedSampler):
        async def score(self, token_ids: Any, *, vectors: Any = None) -> float:
            return float(len(token_ids))

    task = Task(key="k", prompt="q", answer="ab")
    context = RewardContext(samplers={"reward": Length("reward")})
    reward = ReferencedModel(longest_answer=4)
    one, other = score_all(reward, attempt("abcd", task), attempt("abcdefgh", task), context=context)
    assert one.value == other.value and [s.parts["cut"].value for s in (one, other)] == [0.0, 1.0]
