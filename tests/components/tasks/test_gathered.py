from pathlib import Path

from posttrain.components.tasks.files import Files
from posttrain.components.tasks.gathered import Gathered
from posttrain.components.tasks.unpaired import Unpaired
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from tests.components.tasks.written import jsonl


def test_rows_with_one_prompt_are_one_task(tmp_path: Path) -> None:
    rows = [
        {"prompt": "2+2=", "response": "4", "reward": 1.0},
        {"prompt": "3+3=", "response": "6", "reward": 0.5},
        {"prompt": "2+2=", "response": "five", "reward": -1.0},
        {"prompt": "2+2=", "response": "4", "reward": 0.0},
    ]
    alone = Files(path=str(jsonl(tmp_path / "rows.jsonl", rows)))
    first, second = Gathered(tasks=alone).load()
    assert [(r.completion, r.rating) for r in first.rated] == [("4", 1.0), ("five", -1.0), ("4", 0.0)]
    assert [(r.completion, r.rating) for r in second.rated] == [("6", 0.5)]
    assert [first.key, second.key] == [task.key for task in alone.load()[:2]]
    assert Gathered(tasks=alone).describe().endswith("4 rows have 2 prompts")
    assert Gathered(tasks=alone).fingerprint == alone.fingerprint != {}


def test_another_answer_is_another_task(tmp_path: Path) -> None:
    rows = [{"prompt": "A number?", "answer": str(n % 2), "solution": str(n)} for n in range(4)]
    found = Gathered(tasks=Files(path=str(jsonl(tmp_path / "rows.jsonl", rows)))).load()
    assert [(task.answer, task.demonstrations) for task in found] == [("0", ("0", "2")), ("1", ("1", "3"))]


def test_tasks_that_are_one_already_stay_as_they_are() -> None:
    made = Unpaired(tasks=WorkedSolutions(size=20))
    assert list(Gathered(tasks=made).load()) == list(made.load())
