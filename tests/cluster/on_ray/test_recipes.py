"""A run on Ray is the run of one process, bit for bit. With POSTTRAIN_RAY=all every recipe is run."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.component.user_code import allowing
from posttrain.components.timetables.in_turn import InTurn
from posttrain.components.timetables.lagged import Lagged
from posttrain.components.timetables.streaming import Streaming
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import different_files, replay
from tests.cluster.running import needs_ray, on, run, scored, small
from tests.conformance.test_methods import METHODS
from tests.stages.rl.test_together import made

RECIPES = "grpo ppo sft dpo kdrl carft tango chord llamarl asyncflow dump mopps treepo cory awm colar vpl"
"""One of each way to sample and to learn: critics, teachers, pairs, states, judges, trees, flows, a lag, a stream,
latent steps, a head that its stage applies.
"""

FAST = ("grpo", "dpo")
"""Run by `make test-fast` too."""


def marked_slow() -> list[Any]:
    names = sorted(METHODS) if os.environ.get("POSTTRAIN_RAY") == "all" else RECIPES.split()
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


@needs_ray
@pytest.mark.parametrize("name", marked_slow())
def test_a_recipe_on_two_samplers_and_two_learners_is_that_of_one_process(
    name: str, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(name, tiny)
    alone = run(recipe, tmp_path / "local")
    assert "metrics.jsonl" in alone
    on(session, monkeypatch)
    assert run(recipe, tmp_path / "ray") == alone


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("caches", ["renewed", "kept"])
def test_groups_in_progress_over_updates_are_those_of_one_process(
    caches: Any, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that was begun beside the learner is not sampled with the weights of its start for ever, nor one that was
    begun before with those that the learner is changing.
    """
    recipe = scored(small("grpo", tiny), tmp_path, steps=4)
    stage: Any = recipe.stages["rl"]
    rollout = replace(stage.rollout, n=2, sampling=Sampling(max_tokens=24, stop=tuple("aeiouAEIOU13579")))
    schedule = Streaming(eta=2, piece=2, learning=2, caches=caches)
    recipe = replace(recipe, stages={"rl": replace(stage, rollout=rollout)}, schedule=schedule)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    assert run(recipe, tmp_path / "ray") == alone


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("schedule", [InTurn(), Lagged(steps=2), Streaming(eta=2, piece=2, learning=1)])
def test_tasks_that_are_scored_together_are_those_of_one_process(
    schedule: Any, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with allowing(trust=True):
        recipe = made(tiny, tmp_path / "of", schedule, 4)
        stage: Any = recipe.stages["rl"]
        stage = replace(stage, learner=replace(stage.learner, micro_batch_tokens=64))
        recipe = replace(recipe, stages={"rl": stage}, engine=Native(slots=16))
        alone = run(recipe, tmp_path / "local")
        on(session, monkeypatch)
        assert run(recipe, tmp_path / "ray") == alone


@needs_ray
@pytest.mark.slow
def test_a_run_by_the_clock_on_two_samplers_is_replayed_in_one_process(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = scored(small("grpo", tiny), tmp_path, steps=4)
    recipe = replace(recipe, schedule=Streaming(eta=2, piece=2, order="clock", caches="kept"))
    with monkeypatch.context() as patched:
        on(session, patched)
        folder, _ = start(recipe, tmp_path / "ray", LiveView(lines=True))
    with allowing(trust=True):
        new, _ = replay(folder, tmp_path / "again", LiveView(lines=True))
    assert different_files(folder / "model", new / "model") == []


@needs_ray
@pytest.mark.slow
def test_a_reference_with_a_process_of_its_own_is_in_no_learner(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small("ppo", tiny)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    monkeypatch.setattr(session, "scorers", [session._start("Learners", 0)])
    session._check(session.scorers[0])
    published: set[tuple[str, str]] = set()
    before = type(session).publish

    def publish(session: Any, policy: Any, use: Any, learner: Any = None) -> Any:
        published.add((policy.role, use))
        return before(session, policy, use, learner)

    monkeypatch.setattr(type(session), "publish", publish)
    try:
        assert run(recipe, tmp_path / "ray") == alone
    finally:
        import ray

        ray.kill(session.scorers[0].actor)
    assert ("reference", "score") in published and ("reference", "learn") not in published
    assert {("policy", "learn"), ("critic", "learn")} <= published


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo", "ppo", "kdrl", "relift", "tango"])
def test_a_recipe_on_sharded_learners_is_that_of_one_process(
    name: str, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Critics and references are sharded too; a divergence's other model is whole."""
    recipe = small(name, tiny)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    monkeypatch.setattr(session, "settings", replace(session.settings, sharding="fsdp"))
    assert run(recipe, tmp_path / "ray") == alone


@needs_ray
@pytest.mark.slow
def test_what_sharding_does_not_do_is_refused(tiny: Path, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from posttrain.components.optimizers.online_merging import OnlineMerging
    from posttrain.training.learner import Learner
    from posttrain.training.settings import Learning

    monkeypatch.setattr(session, "settings", replace(session.settings, sharding="fsdp"))
    policy = load_policy("policy", Model(source=str(tiny), trained=True), {}, torch.device("cpu"))
    models = {"reference": policy, "base": policy}
    learner = Learner(policy, Learning(optimizer=OnlineMerging()), seed=0, num_steps=1, others=models)
    with pytest.raises(UserError, match=r"the optimizer reads other models; set cluster\.sharding=none"):
        session.workers(learner)
