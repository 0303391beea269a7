"""Items for a judge of one response."""

import json
from pathlib import Path

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.score_items import ScoreItems
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.datasets.judge_prompts import JudgePrompt
from posttrain.errors import UserError

PLAIN = JudgePrompt(rubric="", item="{question}{raw_response}\nJ:", scale=(1, 9), chat=False)


def test_the_chosen_response_scores_high_and_the_rejected_one_low() -> None:
    source = WorkedSolutions(size=20)
    items = ScoreItems(tasks=source, prompt=PLAIN).load()
    for chosen, rejected, task in zip(items[::2], items[1::2], source.load(), strict=True):
        (pair,) = task.preferences
        assert (chosen.prompt, rejected.prompt) == tuple(
            f"{task.prompt}{text}\nJ:" for text in (pair.chosen, pair.rejected)
        )
        assert chosen.demonstrations == ('{"why": "right steps", "score": 9}',)
        assert rejected.demonstrations == ('{"why": "a slip", "score": 1}',)
        assert PLAIN.read(chosen.demonstrations[0]) == 1.0 and PLAIN.read(rejected.demonstrations[0]) == 0.0
        assert chosen.key != rejected.key and not chosen.preferences


def test_without_notes_the_reason_is_the_demonstration_up_to_its_result(tmp_path: Path) -> None:
    row = {"prompt": "Q", "chosen": "good", "rejected": "bad", "completion": " 1+1=2\n#### 2"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row))
    (item, _) = ScoreItems(tasks=Files(path=str(tmp_path / "pairs.jsonl"))).load()
    assert json.loads(item.demonstrations[0])["why"] == "1+1=2"


def test_notes_are_reasons(tmp_path: Path) -> None:
    row = {"prompt": "Which?", "chosen": "good", "rejected": "bad", "notes": ["is good", "is bad"]}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row))
    items = ScoreItems(tasks=Files(path=str(tmp_path / "pairs.jsonl"))).load()
    assert [item.demonstrations for item in items] == [
        ('{"why": "is good", "score": 10}',),
        ('{"why": "is bad", "score": 1}',),
    ]
    bare = ScoreItems(tasks=Files(path=str(tmp_path / "pairs.jsonl")), reasons=False).load()
    assert bare[0].demonstrations == ('{"score": 10}',)
    assert not isinstance(items[0].prompt, str) and "<<<BEGIN" in items[0].prompt[0]["content"]


def test_tasks_without_pairs_are_refused() -> None:
    with pytest.raises(UserError, match="chosen and rejected"):
        ScoreItems(tasks=Arithmetic(size=3)).load()
