"""Recipes: one spelling for Python, YAML and the command line, and errors that name the place."""

import json
from dataclasses import replace

import pytest

from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import from_tree, override, parse_value, repeats, resolve, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.settings.quickstart import quickstart
from posttrain.stages.rl import RL


def rl(recipe: Recipe) -> RL:
    stage = recipe.stages["rl"]
    assert isinstance(stage, RL)
    return stage


def test_a_tree_of_plain_data_gives_the_same_recipe_back() -> None:
    for recipe in (grpo(), quickstart()):
        assert from_tree(json.loads(json.dumps(to_tree(recipe)))) == recipe


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("steps=7", "stages.rl.steps", 7),
        ("rl.steps=7", "stages.rl.steps", 7),
        ("stages.rl.steps=7", "stages.rl.steps", 7),
        ("rollout.n=16", "stages.rl.rollout.n", 16),
        ("rollout.sampling.temperature=0.7", "stages.rl.rollout.sampling.temperature", 0.7),
        ("lr=1e-6", "stages.rl.learner.optimizer.lr", 1e-6),
        ("model=./somewhere/else", "models.policy.source", "./somewhere/else"),
        ("rollout.sampling.stop=[a, b]", "stages.rl.rollout.sampling.stop", ["a", "b"]),
        ("rollout.sampling.stop+=x", "stages.rl.rollout.sampling.stop", ["x"]),
        ("models.policy.lora.rank=4", "models.policy.lora.rank", 4),
        ("models.judge.source=there", "models.judge.source", "there"),
        ("advantage=rloo", "stages.rl.advantage", {"kind": "rloo"}),
        ("advantage.kind=rloo", "stages.rl.advantage", {"kind": "rloo"}),
        ("penalties.kl.kind=kl", "stages.rl.penalties.kl.kind", "kl"),
        ("learner.clip_norm=null", "stages.rl.learner.clip_norm", None),
        ("name=x=y", "name", "x=y"),
    ],
)
def test_overrides_reach_every_leaf(change: str, path: str, value: object) -> None:
    node = to_tree(override(grpo(), [change]))
    for part in path.split("."):
        node = node[part]
    assert node == value


def test_later_overrides_win_and_are_validated_together() -> None:
    recipe = override(grpo(), ["objective.clip_low=0.1", "objective=policy_gradient", "steps=3"])
    assert rl(recipe).objective.kind == "policy_gradient"
    assert rl(recipe).steps == 3


def test_python_and_the_command_line_give_the_same_recipe() -> None:
    recipe = grpo()
    by_hand = replace(recipe, stages={"rl": replace(rl(recipe), steps=5)})
    assert override(recipe, ["steps=5"]) == by_hand


@pytest.mark.parametrize("first", ["stages.rl=true", "stages=3", "stages={~: 1}", "stages.rl={1: 2}"])
def test_a_setting_after_one_that_broke_the_tree_is_refused_too(first: str) -> None:
    with pytest.raises(UserError):
        override(grpo(), [first, "lr=1e-3"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("setps=3", "no field 'setps' in this recipe or its stages (rl); did you mean 'steps'?"),
        ("rollout.nn=3", "stages.rl.rollout (from 'rollout.nn=3'): Independent has no field 'nn'; did you mean 'n'?"),
        ("rollout.n=zero", "stages.rl.rollout.n (from 'rollout.n=zero'): Input should be a valid integer"),
        ("rollout.n=0", "greater than 0, got 0"),
        ("rollouts", "'rollouts' is not an override; write path=value"),
        ("reward=mtach", "no reward named 'mtach'; did you mean 'match'?"),
        ("models.policy.sorce=x", "Model has no field 'sorce'; did you mean 'source'?"),
        ("upkeep={}", "stages.rl (from 'upkeep={}'): RL.upkeep was renamed: write hooks"),
        ("rl.upkeep.follow=copy", "RL.upkeep was renamed: write hooks"),
        ("hooks.follow.kind=average", "the hook 'average' was renamed: write ema"),
        ("by_role.critic.alone=3", "RoleLearning.alone was renamed: write warmup_steps"),
        ("steps.more=1", "stages.rl.steps holds 100, which has no fields"),
        ("objective.clip_low=-1", "stages.rl.objective.clip_low"),
        ("device=gpu", "'auto', 'cpu' or 'cuda', got 'gpu'"),
    ],
)
def test_a_wrong_override_names_its_place_and_the_nearest_name(change: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        override(grpo(), [change])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("filters.varied.kind=deviation", "the filter 'deviation' was renamed: write std"),
        ("filters.varied.kind=moving_deviation", "the filter 'moving_deviation' was renamed: write moving_std"),
        ("alarms.entropy_collapse.beginning=3", "EntropyCollapse.beginning was renamed: write initial_steps"),
        ("alarms.gradient_spike.beginning=3", "GradientSpike.beginning was renamed: write initial_steps"),
        ("penalties.kl={kind: kl, attempts: wrong}", "KL.attempts was renamed: write rollouts"),
        ("objective={kind: pairwise, loss: {kind: redi, fade: 1}}", "REDI.fade was renamed: write decay"),
        ("filters.pairs={kind: best_and_worst, attempts: 1}", "BestAndWorst.attempts was renamed: write min_rollouts"),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(change: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        override(grpo(), [change])
    assert message in str(caught.value)


def test_a_path_that_two_stages_have_must_name_one() -> None:
    with pytest.raises(UserError, match=r"in 2 stages of this recipe; write sft\.learner\S* or rl\.learner"):
        override(quickstart(), ["learner.clip_norm=2"])
    recipe = override(quickstart(), ["sft.learner.clip_norm=2.0"])
    assert to_tree(recipe)["stages"]["sft"]["learner"]["clip_norm"] == 2.0
    assert to_tree(recipe)["stages"]["rl"]["learner"]["clip_norm"] == 1.0


def test_a_stage_that_is_set_to_null_is_left_out() -> None:
    """One at least stays, and a setting of one that is gone is refused."""
    recipe = find_recipe("grpo", ["world=FrozenLake-v1", "tasks=mine.jsonl"])
    assert list(recipe.stages) == ["sft", "rl"]
    for change in ("sft=null", "stages.sft=null"):
        assert list(override(recipe, [change]).stages) == ["rl"]
    with pytest.raises(UserError, match=r"no 'stages.sft'|no field 'sft'"):
        override(recipe, ["sft=null", "sft.batch=2"])
    with pytest.raises(UserError, match="stage"):
        override(recipe, ["sft=null", "rl=null"])
    assert repeats(override(recipe, ["sft=null"]), ["sft=null", "rl.steps=2"]) == []


def test_a_game_is_that_of_every_stage_in_which_two_agents_write() -> None:
    """The other player is the role bob, which is the policy unless the line names another model."""
    line = ["world=textarena:SimpleNegotiation-v0", "models.bob.source=role:policy"]
    tree = to_tree(find_recipe("optima", line))
    games = [tree["stages"][f"isft_{i}"]["rollout"] for i in (1, 2, 3)]
    games += [tree["stages"][f"idpo_{i}"]["rollout"]["of"] for i in (1, 2, 3)]
    for game in games:
        assert game["kind"] == "game" and game["partner"] == "bob" and game["swapped"]
        assert game["environment"]["source"] == "textarena:SimpleNegotiation-v0"
    assert tree["stages"]["sft"]["tasks"]["environment"]["source"] == "textarena:SimpleNegotiation-v0"
    assert tree == to_tree(find_recipe("optima", line[:1])) and tree["models"]["bob"]["source"] == "role:policy"
    assert find_recipe("optima", [line[0], "models.bob.source=pebble"]).models["bob"].source == "pebble"
    assert find_recipe("optima_idpo", line).stages["rl"].rollout.merged == 0.0  # type: ignore[attr-defined]


def test_the_tasks_of_an_environment_are_those_that_are_played_too() -> None:
    tree = to_tree(find_recipe("grpo", ["world=FrozenLake-v1", "view=numbers", "tasks={kind: episodes, size: 7}"]))
    shown, own = tree["stages"]["sft"]["tasks"], tree["stages"]["rl"]["rollout"]["environment"]
    assert tree["tasks"]["size"] == shown["tasks"]["size"] == 7
    assert own["source"] == shown["environment"]["source"] == "FrozenLake-v1"
    assert own["view"] == shown["environment"]["view"] == "numbers"


def test_a_method_without_rollouts_in_an_environment_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"no stage of 'erank' has rollouts in one.*posttrain run grpo world=FrozenLake-v1"
    ):
        find_recipe("erank", ["world=FrozenLake-v1"])


def test_a_path_of_the_recipe_comes_before_one_of_a_stage() -> None:
    assert resolve(to_tree(grpo()), "tasks.path") == ["tasks", "path"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1e-6", 1e-6),
        ("1.5", 1.5),
        ("true", True),
        ("yes", "yes"),
        ("null", None),
        ("a: b: c", "a: b: c"),
        ("[1, 2]", [1, 2]),
        ("{a: 1}", {"a": 1}),
        ("./mine.py:score", "./mine.py:score"),
        ("", None),
        ("08", 8),
    ],
)
def test_values_are_read_as_yaml(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_every_wrong_field_of_a_tree_is_reported_at_once() -> None:
    tree = to_tree(grpo())
    tree["seed"], tree["models"]["policy"]["dtype"] = -1, "float16"
    with pytest.raises(UserError) as caught:
        from_tree(tree, places={"seed": "mine.yaml line 3"})
    assert "seed (mine.yaml line 3): Input should be greater than or equal to 0, got -1" in str(caught.value)
    assert "models.policy.dtype: Input should be 'float32' or 'bfloat16'" in str(caught.value)


def test_models_are_written_by_role_and_frozen() -> None:
    assert grpo().models["policy"] == Model(source="pebble", trained=True)
    with pytest.raises(AttributeError):
        grpo().seed = 3  # type: ignore[misc]
