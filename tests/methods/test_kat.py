"""KAT-V1: stages, and credit of the choice in a run."""

from collections.abc import Callable
from pathlib import Path

from posttrain.components.selections.sampled import Sampled
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.kat import ROWS, kat
from posttrain.policies.folder import new_folder
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.two_ways_of_sums import two_ways_of_sums
from posttrain.stages import Models

Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_it_is_grpo_with_labels_and_two_normalisations() -> None:
    assert ROWS == (310,)
    assert list(kat().stages) == ["sft", "labels", "rl"]
    changed = {difference.path for difference in differences(grpo(two_ways_of_sums()), kat())}
    assert changed == {"stages.labels", "reward", "advantage"}
    selection = kat().stages["labels"].selection
    assert isinstance(selection, Sampled) and selection.writes == {"demonstrations"}


def test_the_modes_of_a_run_are_in_its_metrics(tmp_path: Path, train: Train) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    sizes = ("evaluation.holdout=4", "sft.max_steps=1", "labels.selection.first=2", "labels.selection.n=2")
    more = ("rl.steps=1", "prompts=2", "rollout.n=4", "rollout.sampling.max_tokens=8", "labels.selection.max_tokens=8")
    recipe = override(kat(), [*sizes, *more, "threads=1", f"model={folder}", "rl.filters={}"])
    _, store = train(recipe)
    last = store.metrics()[-1]
    assert last["thinking"] == last["reward/thinks"] == 1.0, "a new model makes no clear choice"
    assert last["tokens_on"] == last["reward/tokens_on"] and last["reward/form"] == 0.0
