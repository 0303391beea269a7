"""A recipe.yaml that a power cut tore, and that still parses, is not taken for the recipe of the run."""

from pathlib import Path

import pytest
import torch

from posttrain.errors import UserError
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import override, to_tree
from posttrain.runs.changes import check_recipe, recipe_changes
from posttrain.runs.context import RunContext
from posttrain.runs.snapshot import newest_snapshot, save_snapshot
from posttrain.runs.store import RunStore


@pytest.mark.slow
def test_wherever_it_is_torn_it_is_refused_or_the_same(tmp_path: Path) -> None:
    recipe = ppo()
    tree = to_tree(recipe)
    with RunStore.create(tmp_path, "run", tree) as store:
        file = store.folder / "recipe.yaml"
        whole = file.read_bytes()
        parsed = 0
        ends = [i + 1 for i, byte in enumerate(whole) if byte == 0x0A]
        for size in [0, *ends, *(end - 2 for end in ends)]:
            file.write_bytes(whole[:size])
            try:
                torn = find_recipe(str(file))
            except UserError:
                continue
            if to_tree(torn) != tree:
                parsed += 1
                with pytest.raises(UserError, match="is not the recipe that the run began with"):
                    check_recipe(store, torn)
        assert parsed > 10, "some that are torn parse"


def test_a_checkpoint_has_its_recipe_where_the_environment_is_lost(tmp_path: Path) -> None:
    tiny = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    recipe = override(ppo(), [f"model={tiny}", "tasks.size=10", "evaluation.holdout=2"])
    context = RunContext(recipe, torch.device("cpu"))
    models = context.with_copies(recipe.stages["rl"], context.first_models())
    with RunStore.create(tmp_path, "run", to_tree(recipe)) as store:
        save_snapshot(store, recipe, models, step=1, stage=0, steps_done=1, memory={}, learners={})
        (store.folder / "environment.json").write_text("{}")
        another = override(recipe, ["rollout.n=4"])
        assert recipe_changes(None, another) == []
        check_recipe(store, another)  # nothing to compare with, so nothing is refused
        with pytest.raises(UserError, match=r"was written under another recipe.*rollout\.n was"):
            newest_snapshot(store, RunContext(another, torch.device("cpu")))
