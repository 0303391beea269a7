from collections.abc import Callable
from pathlib import Path

from posttrain.methods.curriculum.sec import ROWS, sec
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.differences import differences
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.quickstart import quickstart
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

ONLY_SHORT_SUMS_TEACH = (
    "def score(completion, task):\n"
    "    return float(sum(map(ord, completion)) % 2) if task.domain == '2 numbers' else 0.0\n"
)


def test_it_is_grpo_with_another_curriculum() -> None:
    assert ROWS == (61,)
    *of_tasks, last = [d.path for d in differences(grpo(), sec())]
    assert last == "curriculum" and all(path.startswith("tasks.") for path in of_tasks)
    assert [d.path for d in differences(quickstart(), sec(quickstart()))] == ["curriculum"]


def test_steps_go_to_the_category_with_something_to_learn(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(sec(), "prompts=8", "curriculum.temperature=0.02", "filters={}")
    _, store = train(with_reward(recipe, tmp_path, ONLY_SHORT_SUMS_TEACH))
    first, *_, last = [{row["domain"] for row in store.rollouts(step)} for step in (1, 2, 3)]
    assert len(first) > 1
    assert last == {"2 numbers"}
