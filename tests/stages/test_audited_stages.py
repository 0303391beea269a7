"""Other stages of reinforcement than `rl`: they begin with the audit of a reward that uses a model too."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.errors import AlarmStop
from posttrain.methods.credit.archer import archer
from posttrain.methods.rewards.barfi import barfi
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]
LIKELIHOOD = "{kind: likelihood, role: policy}"
CASES = {
    "hierarchical": (
        archer,
        "rl",
        (f"rl.reward={LIKELIHOOD}", "rl.batch=4", "rl.critic_updates=1", "rl.policy_updates=1", "rl.warmup_steps=0"),
    ),
    "outer": (
        barfi,
        "outer",
        (
            f"outer.reward={{kind: sum, parts: {{correct: {LIKELIHOOD}, bonus: {{kind: regex, pattern: '7'}}}}}}",
            "outer.first=1",
            "outer.inner=1",
            "outer.outer_prompts=2",
        ),
    ),
}


def made(case: str, small: Small, *changes: str) -> Recipe:
    method, stage, own = CASES[case]
    sizes = (f"{stage}.steps=2", f"{stage}.prompts=2", "checkpoints.every_steps=1", "evaluation.by=none")
    return override(method(small()), [*own, *sizes, *(f"{stage}.{change}" for change in changes)])


@pytest.mark.parametrize("case", CASES)
def test_a_fooled_reward_stops_the_stage_by_default(case: str, small: Small, train: Train) -> None:
    with pytest.raises(AlarmStop, match=r"outranks or equals .* right answers .* with audit.most_fooled=1"):
        train(made(case, small))


@pytest.mark.parametrize("case", CASES)
def test_it_is_announced_and_off_by_name_and_a_rule_has_none(case: str, small: Small) -> None:
    def notes(*changes: str) -> str:
        recipe = made(case, small, *changes)
        stage = recipe.stages[CASES[case][1]]
        return " ".join(stage.notes(recipe.tasks.load()))

    assert "14 texts without content" in notes() and "audited" not in notes("audit=null")
    assert "audited" not in notes("reward={kind: sum, parts: {correct: match, bonus: match}}")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_it_goes_on_in_the_middle_as_if_it_had_not_been_cut_off(
    case: str, small: Small, train: Train, tmp_path: Path
) -> None:
    recipe = made(case, small, "audit.pairs=3", "audit.every=1", "audit.most_fooled=1", "audit.keys=['.', 'Solution']")
    _, whole = train(recipe)
    _, cut = cut_off_and_resumed(recipe, tmp_path / "cut", at=1)
    found = [[json.dumps(entry) for entry in one.metrics()] for one in (whole, cut)]
    assert found[0] == found[1] and "reward/fooled" in cut.metrics()[-1]
