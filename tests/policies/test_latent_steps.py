"""Latent steps: merged embeddings, densities by hand, labels, and steps that are sampled as they are scored."""

import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch

from posttrain.datasets.latents import CLOSING, STEP, merged, steps_in
from posttrain.engines import Sampling, wait_for
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import LatentSteps, Model
from posttrain.policies.latent_steps import LATENT, LatentPolicy, mean_density
from posttrain.policies.loading import load_policy
from posttrain.signals import ENTROPY, LABEL_LOGP, LATENT_ERROR, LATENT_LOGP, LOGP
from posttrain.stages.sft import demonstration, example_from
from posttrain.training.learner import evaluate_examples
from posttrain.types import Segment, Task, Trajectory

TASK = Task(key="t", prompt="Q: 12+3\nA:", answer="15", demonstrations=(" 12+3=15\n#### 15",))
CPU = torch.device("cpu")


def policy(source: str = "pebble", **settings: object) -> LatentPolicy:
    latent = replace(LatentSteps(width=16), **settings)  # type: ignore[arg-type]
    return cast(LatentPolicy, load_policy("policy", Model(source=source, latent_steps=latent, trained=True), {}, CPU))


def test_merged_by_hand() -> None:
    rows = np.array([[1.0], [2.0], [6.0]], np.float32)
    found, count = merged(rows, 2, root=True)
    np.testing.assert_allclose(found, [[3.0 / (math.sqrt(2.0) + 1e-5)], [6.0 / (1.0 + 1e-5)]], rtol=1e-6)
    assert count.tolist() == [2, 1]
    np.testing.assert_allclose(merged(rows, 2, root=False)[0], [[1.5], [6.0]])
    np.testing.assert_allclose(merged(rows, 1, root=True)[0], rows / (1.0 + 1e-5))


@pytest.mark.parametrize("speed", [2, 4])
def test_the_root_keeps_the_variance_of_independent_embeddings(speed: int) -> None:
    rows = np.random.default_rng(0).normal(size=(4000, 8)).astype(np.float32)
    assert merged(rows, speed, root=True)[0].var() == pytest.approx(1.0, abs=0.05)
    assert merged(rows, speed, root=False)[0].var() == pytest.approx(1.0 / speed, abs=0.02)


def test_density_by_hand_is_a_mean_over_dimensions() -> None:
    own, mean = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 1.0]])
    log_std = torch.tensor([[0.0, math.log(2.0)]])
    logp, entropy = mean_density(own, mean, log_std, 0.5)
    parts = [-0.5 * (z**2 + math.log(2 * math.pi)) - math.log(s) for z, s in [(1.0 / 0.5, 0.5), (2.0 / 1.0, 1.0)]]
    assert float(logp[0]) == pytest.approx(sum(parts) / 2)
    own_entropy = [math.log(s) + 0.5 * (1 + math.log(2 * math.pi)) for s in (0.5, 1.0)]
    assert float(entropy[0]) == pytest.approx(sum(own_entropy) / 2)


def test_a_demonstration_is_merged_and_labelled() -> None:
    model = policy(speeds=(3,))
    shown = demonstration(model, TASK, TASK.demonstrations[0], 0, 0, 0)
    start, written = shown.segments
    assert start.text.endswith("(Thinking speed: 3)#")
    assert written.vectors is not None
    assert written.vectors[:, 0].tolist()[:4] == [STEP, STEP, STEP, CLOSING]
    assert steps_in(shown) == 3  # of the 7 bytes of 12+3=15
    assert model.tokenizer.decode(written.token_ids[3:]) == "##### 15"
    for label, chunk in zip(written.token_ids[:3], ["12+", "3=1", "5"], strict=True):
        assert chr(label) in chunk
    weight = model.body.get_parameter("model.embed_tokens.weight").detach()
    expected = weight[[ord(c) for c in "12+"]].sum(0) / (3**0.5 + 1e-5) / model.step_head.scale
    np.testing.assert_allclose(written.vectors[0, 1:], expected.numpy(), rtol=1e-4)


def test_labels_differ_by_draw_and_the_speed_by_step() -> None:
    model = policy(speeds=(2, 7))
    shown = [
        demonstration(model, TASK, TASK.demonstrations[0], 0, step, place) for step in range(8) for place in (0, 1)
    ]
    counts = [steps_in(one) for one in shown]
    assert counts[::2] == counts[1::2]
    assert set(counts) == {1, 4}
    labels = {tuple(one.segments[1].token_ids[:4]) for one in shown if steps_in(one) == 4}
    assert len(labels) > 1


@pytest.mark.parametrize("text", ["15", "#### 15", " 1#2\n#### 15"])
def test_other_demonstrations_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="reasoning"):
        demonstration(policy(), TASK, text, 0, 0, 0)


def test_a_mark_of_several_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="3 tokens"):
        policy(mark="###")


def test_signals_of_a_demonstration() -> None:
    model = policy(speeds=(2,))
    shown = demonstration(model, TASK, TASK.demonstrations[0], 0, 0, 0)
    needs = frozenset({LOGP, ENTROPY, LABEL_LOGP, LATENT_LOGP, LATENT_ERROR})
    [found] = evaluate_examples(model, [example_from(shown)], needs, max_tokens=512)
    steps = steps_in(shown)
    np.testing.assert_array_equal(found[LOGP][:steps], found[LATENT_LOGP][:steps])
    assert found[LOGP][steps] == 0.0  # the mark is chosen
    assert found[LATENT_LOGP][steps] != 0.0  # and is a target of the head
    np.testing.assert_array_equal(found[LOGP][steps + 1 :], found[LABEL_LOGP][steps + 1 :])
    assert not found[LATENT_ERROR][steps + 1 :].any()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_steps_are_scored_as_they_were_drawn(temperature: float) -> None:
    model = policy(steps=5)
    server, prompt = Native().serve(model, 0), model.prompt(TASK)
    sampler = server.bind("x")
    sampling = Sampling(max_tokens=12, temperature=temperature)
    written = wait_for(sampler.sample(prompt.token_ids, 4, sampling, prompt.vectors))
    rollouts = [
        Trajectory(
            task=TASK,
            segments=(
                prompt,
                Segment(actor="policy", token_ids=c.token_ids, logp=c.logp, trained=True, vectors=c.vectors),
            ),
            stop_reason=c.stop_reason,
        )
        for c in written
    ]
    assert all(len(c.token_ids) <= 12 for c in written)
    assert server.counters.sampled_tokens == sum(len(c.token_ids) for c in written)
    assert all(0 <= steps_in(t) <= 5 for t in rollouts)
    examples = [example_from(t) for t in rollouts]
    scored = evaluate_examples(model, examples, frozenset({LOGP}), max_tokens=512, temperature=temperature)
    for own, rollout in zip(scored, rollouts, strict=True):
        np.testing.assert_allclose(own[LOGP], rollout.behavior_logp, atol=1e-4)


def test_one_that_is_saved_is_read_again(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path)) / "model"
    model = policy()
    with torch.no_grad():
        model.step_head.mean.bias.fill_(0.5)
        model.body.get_parameter("model.embed_tokens.weight").mul_(2.0)
    model.save(folder)
    assert (folder / LATENT).is_file()
    assert cast(LatentPolicy, load_policy("policy", Model(source=str(folder)), {}, CPU)).settings == model.settings
    again = policy(str(folder))
    assert torch.equal(again.step_head.mean.bias, model.step_head.mean.bias)
    assert torch.equal(again.step_head.scale, model.step_head.scale)  # of the model that the head was made for


def test_a_copy_has_the_head_where_its_role_has_one() -> None:
    model = policy()
    same = load_policy("reference", Model(source="role:policy", latent_steps=model.settings), {"policy": model}, CPU)
    assert isinstance(same, LatentPolicy)
    plain = load_policy("reference", Model(source="role:policy"), {"policy": model}, CPU)
    assert not isinstance(plain, LatentPolicy)
    assert plain.body.vector_width is None
