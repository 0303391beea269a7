"""Seconds and bytes of calls on an accelerator of round numbers, worked out by hand."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.cluster.planning.accelerators import (
    ARITHMETIC,
    TRAFFIC,
    Accelerator,
    Amount,
    Sizes,
    candidates,
    layouts,
    meshes,
    read_devices,
    seconds,
    transfer,
)
from posttrain.cluster.planning.asked import Asked, Work, describe
from posttrain.errors import UserError

ROUND = Accelerator(
    flops=1e12 / ARITHMETIC, memory=20 * 10**9, traffic=1e11 / TRAFFIC, link=1e10 / TRAFFIC, network=1e9 / TRAFFIC
)
"""A trillion operations, and 100, 10 and 1 billion bytes a second of memory, link and network."""
MODEL = Sizes(parameters=10**9, layers=10, width=100, kv_width=50)
AMOUNT = Amount(sequences=4, prompt=10, response=10)


@pytest.mark.parametrize(
    ("kind", "layout", "expected"),
    [
        ("score", (1, 1, 1), 0.16),  # 2 x 1e9 x 80 tokens
        ("train", (1, 1, 1), 0.48),  # three times
        ("score", (2, 1, 1), 0.08 * 1.25),  # half, and a bubble of 1 of 4 sequences
        ("score", (1, 1, 2), 0.08 + 80 * 4000 / 1e10),  # two sums of 200 bytes a token and layer, twice the half each
        ("train", (1, 2, 1), 0.24 + 4e9 / 1e10),  # half the sequences, and a sum of gradients by the link
        ("train", (1, 16, 1), 0.12 + 2 * 15 / 16 * 4e9 / 1e9),  # one sequence, and a sum by the network
        ("generate", (1, 1, 1), 0.08 + 10 * (2e9 + 120_000) / 1e11),  # the prompts, then weights and keys a token
    ],
)
def test_seconds(kind: Any, layout: Any, expected: float) -> None:
    assert seconds(kind, MODEL, AMOUNT, layout, ROUND) == pytest.approx(expected)


def test_weights_of_another_layout_come_by_the_network() -> None:
    assert transfer(MODEL, (2, 1, 2), ROUND) == pytest.approx(0.5)


def test_meshes_are_powers_of_two_in_a_node_or_whole_nodes() -> None:
    assert len(list(meshes(4))) == 4 + 2 + 1
    assert len(list(meshes(24))) == 24 + 12 + 6 + 3 + 2 + 1
    assert set(layouts(4)) == {(1, 4, 1), (1, 2, 2), (1, 1, 4), (2, 2, 1), (2, 1, 2), (4, 1, 1)}


def test_bytes_of_a_trained_model_are_shared_and_what_does_not_fit_is_left_out() -> None:
    """2 bytes a weight in each copy, 16 more of all together: 18 GB on one device, 10 on two copies."""
    amount = Amount(sequences=16, prompt=10, response=10)
    found = {c.layout: c.static for c in candidates("train", MODEL, amount, 2, ROUND)}
    assert found == {(1, 1, 1): 18 * 10**9, (1, 2, 1): 10 * 10**9, (2, 1, 1): 9 * 10**9, (1, 1, 2): 9 * 10**9}
    small = Accelerator(**{**asdict(ROUND), "memory": 9_500_000_000})
    assert {c.layout for c in candidates("train", MODEL, amount, 2, small)} == {(2, 1, 1), (1, 1, 2)}


@pytest.mark.parametrize(
    ("text", "message"),
    [("h100", "write COUNT:NAME"), ("0:h100", "write COUNT:NAME"), ("8:h101", "h100"), ("12:h100", "whole nodes of 8")],
)
def test_devices_that_there_are_not_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_devices(text)


def test_a_plan_of_ppo_on_four_beats_the_same_devices_for_all(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["ppo", "gpus=4:h100", "prompt=64"]
    assert main(["plan", *words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    calls = found["best"][0]["calls"]
    assert set(calls) == {"generate policy", "score critic", "score reference", "train critic", "train policy"}
    assert found["best"][0]["seconds"] < found["symmetric"]["seconds"]
    assert all(set(own["devices"]) <= {0, 1, 2, 3} for own in calls.values())


def test_a_recipe_that_does_not_sample_has_no_placement(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "dpo", "gpus=4:h100"]) == 2
    assert "a stage that samples and learns" in capfd.readouterr().err


ASKED = Asked(samplers=2, learners=2, scorers=0, sharded=False, lag=0)
WORK = Work(sizes={"policy": MODEL, "reference": MODEL}, trained=("policy",), amount=AMOUNT, on=ROUND)


def test_what_is_asked_for_takes_the_sum_of_its_calls_and_the_longer_of_both_when_sampled_ahead() -> None:
    sample = 0.04 + 10 * (2e9 + 60_000) / 1e11  # the prompts of two, then weights and keys a token
    found = describe(ASKED, WORK)
    phases = found["phases"]
    assert phases["generate policy"] == pytest.approx(sample) and phases["score reference"] == pytest.approx(0.08)
    assert phases["train policy"] == pytest.approx(0.24 + 4e9 / 1e10) and phases["weights"] == pytest.approx(2.0)
    assert found["step"] == pytest.approx(sample + 0.08 + 0.64 + 2.0) and found["longest"] == "weights"
    assert found["idle"]["sampler"] == pytest.approx(1 - sample / found["step"])
    ahead = describe(replace(ASKED, lag=1, scorers=1), WORK)
    assert ahead["step"] == pytest.approx(0.16 + 0.64 + 2.0), "the reference is scored by one process"


def test_bytes_of_what_is_asked_for_are_those_of_its_processes() -> None:
    """Two bytes a weight, four of its gradient, twelve of masters and moments, which the first learner has."""
    giga = 10**9
    found = describe(ASKED, WORK)["memory"]
    assert {name: found["own"][name] / giga for name in ("weights", "gradients", "optimizer", "buffers")} == {
        "weights": 4,
        "gradients": 4,
        "optimizer": 12,
        "buffers": 2,
    }
    assert found["learner"]["optimizer"] == 0 and found["learner"]["weights"] == 4 * giga
    assert found["sampler"]["keys and values"] == 2 * 20 * 2 * 10 * 50 * 2
    apart = describe(replace(ASKED, sharded=True, scorers=1, lag=2), WORK)["memory"]
    assert apart["scorer"]["weights"] == 2 * giga and apart["sampler"]["versions"] == 4 * giga
    assert apart["learner"]["weights"] == giga and apart["learner"]["optimizer"] == 6 * giga
    assert apart["own"]["weights"] == 3 * giga, "whole ones besides, for samplers"


def test_a_plan_states_what_the_recipe_requests_and_what_is_faster(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "grpo", "model=pebble", "cluster=ray", "cluster.samplers=3", "gpus=4:h100", "prompt=64"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["asked"]["samplers"] == 3 and found["asked"]["fits"]
    assert 1 <= len(found["best"]) <= 3
    assert all(own["seconds"] < found["asked"]["seconds"] for own in found["best"])
    assert main(words) == 0
    assert "asked: samplers 3, learners 1, scorers 0" in capfd.readouterr().out
    assert main([*words, "cluster.learners=2"]) == 2
    assert "cluster.samplers=3, cluster.learners=2 and cluster.scorers=0 ask for 5 devices" in capfd.readouterr().err
