"""Checks of a resolved recipe: warnings, and errors where nothing could be learned."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.components.advantages.by_episode import ByEpisode
from posttrain.components.advantages.moving_baseline import MovingBaseline
from posttrain.components.advantages.reinforce_plus_plus import ReinforcePlusPlus
from posttrain.components.curricula import Curriculum
from posttrain.components.curricula.bandit import Bandit
from posttrain.components.curricula.evolved import Evolved
from posttrain.components.curricula.ucb import Ucb
from posttrain.components.curricula.variance import Variance
from posttrain.components.environments.calculator import Calculator
from posttrain.components.filters.zero_variance import ZeroVariance
from posttrain.components.rewards.function import Function
from posttrain.components.rewards.judge import Judge
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.summarized import Summarized
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.files import Files
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override, repeats
from posttrain.recipes.tree import Recipe
from posttrain.runs.checks import warnings_of
from posttrain.runs.problems import Problems
from posttrain.types import Message, Task

Rows = Sequence[Mapping[str, Any]]
SUMS = [{"prompt": f"{i} + 1 = ", "answer": str(i + 1)} for i in range(20)]
CHATS = [{"messages": [{"role": "user", "content": f"{i} + 1?"}], "answer": str(i + 1)} for i in range(20)]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return recipe_of(tmp_path, SUMS)


def recipe_of(folder: Path, rows: Rows, **stage: Any) -> Recipe:
    """GRPO on rows, without a warm-up."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"reward": Match(), "filters": {}, "rollout": Independent(n=4), **stage}
    changed = replace(rl_of(grpo()), **settings)
    return replace(grpo(), tasks=Files(path=str(path)), stages={"rl": changed}, evaluation=Evaluation(holdout=5))


def with_rl(recipe: Recipe, **stage: Any) -> Recipe:
    return replace(recipe, stages={"rl": replace(rl_of(recipe), **stage)})


def _length(task: Task) -> int:
    texts = [task.prompt] if isinstance(task.prompt, str) else [message["content"] for message in task.prompt]
    return sum(map(len, texts))


def warnings(recipe: Recipe, template: str = "") -> list[str]:
    """Warnings with a policy of 256 tokens, one per character; `template` renders chats, if it has one."""

    def render(messages: Sequence[Message]) -> str:
        texts = [message["content"] for message in messages]
        last = len(texts) - 1
        cut = [t.split("</think>")[-1] if template == "strips" and i < last else t for i, t in enumerate(texts)]
        return "\n".join(cut)

    tokenizer = SimpleNamespace(has_chat_template=bool(template), render_chat=render)
    policy = SimpleNamespace(context=256, prompt_length=_length, tokenizer=tokenizer)
    return warnings_of(recipe, Problems(recipe), {"policy": policy})  # type: ignore[dict-item]


def test_an_ordinary_recipe_has_no_warnings(recipe: Recipe) -> None:
    assert warnings(recipe) == []


@pytest.mark.parametrize(("source", "what"), [("policy", "the policy"), ("role:policy", "a copy of the policy")])
def test_a_judge_that_is_the_policy_is_reported(recipe: Recipe, source: str, what: str) -> None:
    judge = Judge(role="policy" if source == "policy" else "judge")
    own = replace(with_rl(recipe, reward=judge), models={**recipe.models, "judge": Model(source=source)})
    assert any(f"its judge is {what}" in text and "audit --judge" in text for text in warnings(own))
    assert warnings(replace(own, models={**own.models, "judge": Model(source="elsewhere")})) == [] or source == "policy"


def test_a_head_that_is_read_at_a_token_of_its_own_encodes_text(recipe: Recipe) -> None:
    models = {**recipe.models, "reward": Model(source="pebble", head="reward", read_at="!")}
    rewarded = replace(with_rl(recipe, reward=RewardModel()), models=models)
    with pytest.raises(UserError, match=r"read at '!'.*set own_tokens=true"):
        warnings(rewarded)
    assert warnings(replace(with_rl(recipe, reward=RewardModel(own_tokens=True)), models=models)) == []


def test_a_group_of_one_has_no_baseline(recipe: Recipe) -> None:
    one = with_rl(recipe, rollout=Independent(n=1))
    with pytest.raises(UserError, match=r"rollout\.n is 1, and group_mean compares .* nothing would be learned"):
        warnings(one)
    assert warnings(with_rl(one, advantage=ReinforcePlusPlus(baseline="none"))) == []


def test_statistics_of_a_group_count_episodes(recipe: Recipe) -> None:
    rows = with_rl(recipe, rollout=Summarized(environment=Calculator()))
    with pytest.raises(UserError, match=r"several rows, and group_mean would count each .* advantage=by_episode"):
        warnings(rows)
    assert warnings(with_rl(rows, advantage=ByEpisode())) == []


@pytest.mark.parametrize("curriculum", [Bandit(), Ucb(), Evolved(), Variance()])
def test_a_curriculum_that_reads_the_spread_of_groups_of_one(recipe: Recipe, curriculum: Curriculum) -> None:
    one = with_rl(recipe, rollout=Independent(n=1), advantage=MovingBaseline())
    assert warnings(one) == []
    spread = f"rollout.n is 1, and the curriculum {curriculum.kind} learns from "
    with pytest.raises(UserError, match=spread):
        warnings(with_rl(one, curriculum=curriculum))
    assert warnings(with_rl(one, curriculum=Evolved(informativeness="mean"))) == []


def test_a_filter_that_drops_every_group(recipe: Recipe) -> None:
    stage = {"advantage": ReinforcePlusPlus(baseline="none"), "filters": {"equal": ZeroVariance()}}
    with pytest.raises(UserError, match=r"filters\.equal \(zero_variance\) drops groups"):
        warnings(with_rl(recipe, rollout=Independent(n=1), **stage))
    assert warnings(with_rl(recipe, **stage)) == []


def test_temperature_zero(recipe: Recipe) -> None:
    greedy = Sampling(temperature=0.0)
    with pytest.raises(UserError, match="all 4 rollouts of a task are the same"):
        warnings(with_rl(recipe, rollout=Independent(n=4, sampling=greedy)))
    free = with_rl(recipe, rollout=Independent(sampling=greedy), advantage=ReinforcePlusPlus(baseline="none"))
    [warning] = warnings(free)
    assert warning.startswith("stage rl: rollout.sampling.temperature is 0")


def test_more_tokens_than_the_context_holds(recipe: Recipe) -> None:
    assert warnings(with_rl(recipe, rollout=Independent(sampling=Sampling(max_tokens=247)))) == []
    [warning] = warnings(with_rl(recipe, rollout=Independent(sampling=Sampling(max_tokens=248))))
    assert "max_tokens is 248, but with the longest prompt of 9 tokens the policy's context of 256 has room" in warning


def test_more_threads_than_processors(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert warnings(replace(recipe, threads=8)) == []
    [warning] = warnings(replace(recipe, threads=500))
    assert warning.startswith("threads is 500, but this machine has 8 processors")


def test_a_holdout_larger_than_the_data(recipe: Recipe) -> None:
    [warning] = warnings(replace(recipe, evaluation=Evaluation(holdout=30)))
    assert warning.startswith("evaluation.holdout is 30, but only 10 tasks could be held out")


def test_missing_answers_are_named_by_line(tmp_path: Path) -> None:
    rows = [row if i not in (3, 7) else {**row, "answer": None} for i, row in enumerate(SUMS)]
    found = warnings(recipe_of(tmp_path, rows))
    lines = [number for warning in found for number in ("4", "8") if f"rows.jsonl line {number})" in warning]
    both = [warning for warning in found if "rows.jsonl lines 4 and 8)" in warning]
    assert both or sorted(lines) == ["4", "8"]
    assert all("have no answer, which match compares with" in warning for warning in found)


def test_no_answer_at_all_is_an_error(tmp_path: Path) -> None:
    rows = [{"prompt": row["prompt"]} for row in SUMS]
    own = Function(path="mine.py:score")
    with pytest.raises(UserError, match=r"none of the 15 tasks has an answer, which sum compares with.*lines 1, "):
        warnings(recipe_of(tmp_path, rows, reward=Sum(parts={"own": own, "right": Match()})))
    assert warnings(recipe_of(tmp_path, rows, reward=own)) == []


def test_a_template_that_strips_thoughts(tmp_path: Path) -> None:
    chats = recipe_of(tmp_path, CHATS, rollout=Turns(environment=Calculator()))
    assert warnings(chats, "keeps") == []
    [warning] = warnings(chats, "strips")
    assert "leaves out <think>...</think>" in warning and "rollouts keep the thoughts" in warning
    assert warnings(recipe_of(tmp_path, CHATS), "strips") == [], "no turn comes before the answer"


def test_data_with_thoughts_of_earlier_turns(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "1?"}, {"role": "assistant", "content": "<think>hm</think>1"}]
    rows = [{**row, "messages": [*turns, *row["messages"]]} for row in CHATS]
    sampling = Sampling(max_tokens=1)
    [warning] = warnings(recipe_of(tmp_path, rows, rollout=Independent(n=4, sampling=sampling)), "strips")
    assert "conversations hold earlier thoughts" in warning


@pytest.mark.parametrize(
    "changes",
    [
        ["seed=1", "seed=2"],
        ["lr=1e-4", "stages.rl.learner.optimizer.lr=2e-4"],
        ["rollout.sampling.top_k=3", "rollout={kind: independent}"],
    ],
)
def test_the_same_setting_twice(recipe: Recipe, changes: list[str]) -> None:
    [warning] = repeats(override(recipe, changes), changes)
    assert warning.startswith(f"'{changes[0]}' does nothing, because '{changes[1]}' sets ")


@pytest.mark.parametrize(
    "changes",
    [["seed=1", "steps=2"], ["rollout={kind: independent}", "rollout.n=3"], ["name=a"], ["setting=x", "setting=y"]],
)
def test_different_settings(recipe: Recipe, changes: list[str]) -> None:
    assert repeats(recipe, changes) == []
