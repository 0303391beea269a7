"""RFTT: its stages, what a run records of tags and paths, and rewards at closing tags of real tokens."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from posttrain.components.penalties.step_scores import StepScores
from posttrain.components.rollouts import Spans
from posttrain.components.rollouts.searched import Searched
from posttrain.components.search.functions import Functions
from posttrain.components.selections.paths import Paths
from posttrain.components.tasks.tagged_steps import GRAMMAR
from posttrain.methods.policy_gradient.reinforce_plus_plus import reinforce_plus_plus
from posttrain.methods.search.rftt import ROWS, rftt
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.functional_sums import functional_sums
from posttrain.stages import Models
from posttrain.stages.rl.spans import with_spans
from posttrain.types import Group, Segment
from tests.builders import trajectory

Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_it_is_reinforce_plus_plus_with_searched_paths() -> None:
    assert ROWS == (306,)
    recipe = rftt()
    assert list(recipe.stages) == ["sft", "paths", "process", "rl"]
    changed = {difference.path for difference in differences(reinforce_plus_plus(functional_sums()), recipe)}
    expected = {"rollout", "penalties.steps", "stages.paths", "stages.process", "models.process", "evaluation.search"}
    assert changed == expected
    paths, rollout, answering = recipe.stages["paths"].selection, recipe.stages["rl"], recipe.evaluation.search
    assert isinstance(paths, Paths) and paths.prefer == ("fix",) and paths.most == 2
    assert isinstance(answering, Functions) and answering.value_role == "process" and answering.grammar == GRAMMAR
    assert isinstance(getattr(rollout, "rollout", None), Searched)


def test_closing_tags_are_found_in_tokens(tmp_path: Path) -> None:
    """Also where the opening tag is in a segment of its own, as in searched rollouts."""
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    models = {"policy": load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))}
    tokenizer = models["policy"].tokenizer
    texts = ["<step>", "1+1=2</step>", "<answer>", "2</answer>"]
    parts = tuple(
        Segment(actor="policy", token_ids=tokenizer.encode_open(text), trained=True, text=text) for text in texts
    )
    one = replace(trajectory(), segments=(trajectory().segments[0], *parts))
    (group,) = with_spans([Group(trajectories=(one,))], StepScores(grammar=GRAMMAR).tags, models)
    spans = group.trajectories[0].fact(Spans)
    assert spans is not None
    first = len(parts[0]) + len(parts[1])
    assert spans.closings == {
        "answer": (first + len(parts[2]) + len(parts[3]) - 1,),
        "check": (),
        "fix": (),
        "step": (first - 1,),
    }


@pytest.mark.slow
def test_a_run_records_paths_and_tags(tmp_path: Path, train: Train) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    sizes = ("evaluation.holdout=4", "sft.max_steps=1", "process.steps=1", "process.batch=2", "rl.steps=1", "prompts=2")
    searches = [f"{place}.rollouts=2" for place in ("rl.rollout.search", "process.search", "evaluation.search")]
    short = [
        f"{place}.sampling.max_tokens=40" for place in ("rl.rollout.search", "process.search", "evaluation.search")
    ]
    recipe = override(rftt(), [*sizes, *searches, *short, "threads=1", f"models.policy.source={folder}"])
    recipe = replace(recipe, stages={name: recipe.stages[name] for name in ("sft", "process", "rl")})
    _, store = train(recipe)
    last = store.metrics()[-1]
    assert {"tags/step", "tags/check", "tags/fix", "tags/answer"} <= last.keys()
    assert last["reward"] == 0.0, "a new model writes no path"
    searched = store.evaluations()[-1]["searched"]
    assert searched["tasks"] == 4 and 0.0 <= searched["answered"] <= 1.0 and searched["revisits"] >= 0.0
