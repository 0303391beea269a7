"""Plans of samplers and learners follow from four profiles."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs.forecasting import Profile, Seen, better, forecast, profile, tried_all, walked

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")

MB = 1_000_000
ALONE = Seen(sample=4.0, learn=6.0, total=10.5, tokens=800.0, weights=0.0, peaks={"own": 900 * MB})
FOUND = Profile(
    alone=ALONE,
    half=replace(ALONE, sample=2.5, learn=3.5, total=6.2, tokens=400.0),
    busy=replace(ALONE, sample=5.0, learn=7.5, total=13.0),
    shared=replace(
        ALONE, sample=4.2, learn=4.65, total=9.35, peaks={"own": 1000 * MB, "sampler": 500 * MB, "learner": 700 * MB}
    ),
    prompts=8,
    batches=8,
    parameters=25 * MB,
    weights=120 * MB,
    decoding=120 * MB,
    cores=2,
)
"""Prompts take 3/8 s each beside 1 s, micro-batches 5/8 s beside 1 s; what is busy together is slower by a quarter;
requests take .2 s, an exchange of gradients .13125 s."""


def test_one_process_is_what_was_measured() -> None:
    found = forecast(FOUND, 0, 1, 0)
    assert found.seconds == 10.5 and found.memory == {"own": 900 * MB} and found.bottleneck == "learn"


def test_a_sampler_of_its_own_costs_its_requests() -> None:
    found = forecast(FOUND, 1, 1, 0)
    assert found.seconds == pytest.approx(4.2 + 6.0 + 0.5)
    assert found.idle == pytest.approx({"own": 1 - 6.5 / 10.7, "sampler": 1 - 4.2 / 10.7})
    assert found.memory == {"own": 630 * MB, "sampler": 500 * MB}, (
        "without what an exchange takes, and what other learners read"
    )


def test_two_learners_have_half_of_the_rounds_and_exchange_after_each() -> None:
    assert forecast(FOUND, 1, 2, 0).phases["learn"] == pytest.approx(4.65), "as it was measured"
    assert forecast(FOUND, 1, 3, 0).phases["learn"] == pytest.approx(1 + 3 * 0.625 * 1.25 * 1.5 + 3 * 0.13125 * 1.5)


def test_two_samplers_have_half_of_the_prompts_and_are_slower_together() -> None:
    assert forecast(FOUND, 2, 1, 0).phases["sample"] == pytest.approx((1 + 4 * 0.375) * 1.25 + 0.2)
    assert forecast(FOUND, 4, 1, 0).phases["sample"] == pytest.approx((1 + 2 * 0.375) * 1.25 * 2 + 0.2)


def test_sampled_ahead_a_step_is_the_longer_of_both() -> None:
    found = forecast(FOUND, 1, 1, 1)
    assert found.seconds == pytest.approx(6.7 + 4.2 * 0.25), (
        "learning is slower while it is sampled beside, and this process serves the requests"
    )
    assert found.idle["own"] == pytest.approx(1 - 6.7 / (6.7 + 4.2 * 0.25))
    brought = replace(FOUND, shared=replace(FOUND.shared, weights=0.15))
    assert forecast(brought, 1, 1, 1).seconds == pytest.approx(6.55 + 4.2 * 0.25), "weights are taken by the sampler"
    assert found.memory["sampler"] == (500 + 2 * 240) * MB, "two versions, with a form for decoding and a buffer each"
    assert found.memory["own"] == (630 + 2 * 120) * MB
    crowded = forecast(FOUND, 2, 2, 1)
    samplers, learners, once = 2 * (1 + 4 * 0.375) * 1.25, 2 * 4 * (0.625 * 1.25 + 0.13125), (1 + 0.5) * 1.25 + 0.2
    assert crowded.seconds == pytest.approx((samplers + learners + once) / 2), "two cores have the work of four"


def test_better_placements_are_faster_and_no_larger() -> None:
    asked = forecast(FOUND, 2, 2, 0)
    for own in better(FOUND, asked):
        assert own.seconds < asked.seconds and own.processes <= 4
    assert [(own.samplers, own.learners) for own in better(FOUND, forecast(FOUND, 1, 1, 0))] == []
    assert better(FOUND, forecast(FOUND, 3, 1, 0))[0].plain()["bottleneck"] in ("sample", "learn")


def test_the_walk_finds_what_all_placements_have_where_both_run() -> None:
    """Of many cores, with so little to send that many processes are faster."""
    large = replace(FOUND, prompts=64, batches=64, cores=64)
    for most in (4, 9, 24):
        for lag in (0, 1):
            best = min(tried_all(large, lag, most), key=lambda own: own.seconds)
            assert min(walked(large, lag, most), key=lambda own: own.seconds).seconds == best.seconds
    many = better(large, forecast(large, 60, 20, 1))
    assert len(many) == 3 and many[0].seconds <= many[1].seconds and all(own.processes <= 80 for own in many)


def test_what_cannot_be_shared_has_no_plan() -> None:
    with pytest.raises(UserError, match=r"two prompts or more and learner\.micro_batch_tokens"):
        profile(find_recipe("grpo", ["cluster=ray"]))
    with pytest.raises(UserError, match=r"this recipe has the stages .*, of which none samples"):
        profile(find_recipe("sft", []))


def test_what_was_measured_is_planned_again_without_a_run() -> None:
    """The command of the table in docs/scale.md, with the profile of above and a run of 11 s."""
    spec = importlib.util.spec_from_file_location("planned", Path(__file__).parents[2] / "docs/experiments/planned.py")
    assert spec is not None and spec.loader is not None
    planned = importlib.util.module_from_spec(spec)
    sys.modules["planned"] = planned  # where its classes are looked for
    spec.loader.exec_module(planned)
    run = replace(FOUND.shared, total=11.0)
    measured = planned.Measured(profiles={"0.8M float32 fixed": FOUND}, runs={2: run})
    again = planned.Measured()
    again.read(json.loads(json.dumps(measured.lines())))
    assert again.profiles == measured.profiles and again.runs == measured.runs
    (row,) = planned.rows(again)
    plan = forecast(FOUND, 1, 1, 1)
    assert row[:9] == ["0.8M", "float32", "fixed", "1", "1", "1", f"{plan.seconds:.3f}", "11.000", "-30"]
    assert row[9:14] == ["870", "1000", "-13", str(plan.memory["sampler"] // MB), "500"]


@needs_ray
@pytest.mark.slow
def test_a_profile_is_measured(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    size = ["prompts=2", "rollout.n=2", "rollout.sampling.max_tokens=8", "evaluation.holdout=2", "threads=1"]
    recipe = find_recipe("grpo", [*size, f"model={folder}", "learner.micro_batch_tokens=64", "filters={}"])
    found = profile(recipe, steps=2)
    assert found.alone.total >= found.alone.sample + found.alone.learn > 0 < found.half.total
    assert set(found.shared.peaks) == {"own", "sampler", "learner"} and found.shared.peaks["sampler"] > 100 * MB
    assert forecast(found, 1, 2, 0).seconds > 0
