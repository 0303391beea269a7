"""Every rule: a planted case raises it, and what looks like it but is well does not."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from posttrain.components.alarms import Alarm, Readings
from posttrain.components.alarms.collapse import Collapse
from posttrain.components.alarms.divergence import Divergence
from posttrain.components.alarms.duplicates import Duplicates
from posttrain.components.alarms.entropy_collapse import EntropyCollapse
from posttrain.components.alarms.grader_errors import GraderErrors
from posttrain.components.alarms.gradient_spike import GradientSpike
from posttrain.components.alarms.held_out_falls import HeldOutFalls
from posttrain.components.alarms.length import Length
from posttrain.components.alarms.not_finite import NotFinite
from posttrain.components.alarms.repeated_text import RepeatedText
from posttrain.components.alarms.reward_collapse import RewardCollapse
from posttrain.components.alarms.reward_weight import RewardWeight
from posttrain.components.alarms.sampler_gap import SamplerGap
from posttrain.components.alarms.truncation import Truncation
from posttrain.components.alarms.zero_variance import ZeroVariance
from posttrain.recipes.tree import ALARMS
from posttrain.statistics.intervals import wilson

Steps = Iterable[Mapping[str, float]]


def watch(alarm: Alarm, steps: Steps, evaluations: Mapping[int, int] | None = None) -> dict[int, str]:
    """Messages of an alarm, by step from 1. `evaluations`: correct answers of 200 at the end of a step. The state
    passes through JSON at every step, as through a checkpoint.
    """
    state, messages, seen = alarm.start(), {}, [evaluation(20)]
    for step, metrics in enumerate(steps, 1):
        state, message = alarm.check(state, Readings(metrics=metrics, evaluations=seen))
        state = json.loads(json.dumps(state, allow_nan=False))
        if message:
            messages[step] = message
        if step in (evaluations or {}):
            seen.append(evaluation((evaluations or {})[step]))
    return messages


def evaluation(right: int) -> dict[str, Any]:
    return {"accuracy": right / 200, "accuracy_interval": list(wilson(right, 200))}


def curve(**metrics: list[float]) -> list[dict[str, float]]:
    return [dict(zip(metrics, values, strict=True)) for values in zip(*metrics.values(), strict=True)]


def line(start: float, end: float, steps: int) -> list[float]:
    return np.linspace(start, end, steps).tolist()


def test_entropy_that_collapses_while_tasks_are_unsolved() -> None:
    falling = curve(entropy=[1.0] * 5 + [0.01] * 10, solved=[0.3] * 15)
    assert min(watch(EntropyCollapse(), falling)) == 10  # the fifth step below 5 % of the first five's mean
    assert "from 1 in the first steps, with 30 %" in watch(EntropyCollapse(), falling)[10]
    solved = curve(entropy=[1.0] * 5 + [0.01] * 10, solved=[0.3] * 5 + [0.97] * 10)
    assert not watch(EntropyCollapse(), solved)
    assert not watch(EntropyCollapse(), curve(entropy=[1.0] * 5 + [0.01, 0.01, 0.01, 0.01, 0.2] * 5, solved=[0.0] * 30))


def test_the_entropy_of_a_density_raises_nothing() -> None:
    assert not watch(EntropyCollapse(), curve(entropy=[-0.1] * 20, solved=[0.0] * 20))
    assert not watch(EntropyCollapse(), curve(entropy=[0.1] * 5 + [-2.0] * 20, solved=[0.0] * 25))


def test_a_reward_that_had_been_learned_and_is_lost() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.02, 60)
    lost = np.array(line(0.2, 0.8, 30) + line(0.8, 0.2, 30)) + noise
    messages = watch(RewardCollapse(), curve(reward=lost.tolist()))
    assert messages and 40 < min(messages) <= 60
    kept = np.array(line(0.2, 0.8, 30) + [0.75] * 30) + noise
    assert not watch(RewardCollapse(), curve(reward=kept.tolist()))
    never = 0.3 + 3 * noise  # nothing was gained, so nothing can be lost
    assert not watch(RewardCollapse(), curve(reward=never.tolist()))


def test_reward_up_while_held_out_accuracy_falls() -> None:
    reward = curve(reward=line(0.2, 0.9, 40))
    messages = watch(HeldOutFalls(), reward, {10: 100, 20: 120, 30: 60})
    assert list(messages) == [31]
    assert "30.0 % after 60.0 %" in messages[31]
    assert not watch(HeldOutFalls(), reward, {10: 100, 20: 120, 30: 112})  # within what luck does
    assert not watch(HeldOutFalls(), curve(reward=line(0.9, 0.2, 40)), {10: 100, 20: 120, 30: 60})  # both fall


def test_completions_that_grow_or_shrink_without_earning_more() -> None:
    flat = [0.5] * 60
    longer = watch(Length(), curve(completion_tokens=line(50, 300, 60), reward=flat))
    assert longer and "longer" in next(iter(longer.values()))
    shorter = watch(Length(), curve(completion_tokens=line(300, 20, 60), reward=flat))
    assert shorter and "shorter" in next(iter(shorter.values()))
    assert not watch(Length(), curve(completion_tokens=line(50, 300, 60), reward=line(0.1, 0.9, 60)))
    assert not watch(Length(), curve(completion_tokens=line(50, 80, 60), reward=flat))


@pytest.mark.parametrize(
    ("alarm", "metric", "bad", "good", "patience"),
    [
        (ZeroVariance(), "zero_variance", 1.0, 0.9, 10),
        (Truncation(), "truncated", 0.6, 0.4, 5),
        (GraderErrors(), "grader_errors", 0.06, 0.01, 1),
        (SamplerGap(), "sampler_gap", 0.03, 1e-5, 3),
        (RepeatedText(), "repeated", 0.7, 0.2, 3),
        (Divergence(), "kl/reference", 1.5, 0.3, 3),
        (Duplicates(), "duplicates", 0.95, 0.5, 5),
    ],
)
def test_bounds_take_patience(alarm: Alarm, metric: str, bad: float, good: float, patience: int) -> None:
    assert min(watch(alarm, [{metric: bad}] * 20)) == patience
    broken_off = ([{metric: bad}] * (patience - 1) + [{metric: good}]) * 4
    assert not watch(alarm, broken_off)
    assert not watch(alarm, [{metric: good}] * 50)


def test_duplicates_that_are_right_are_well() -> None:
    assert not watch(Duplicates(), [{"duplicates": 1.0, "solved": 0.9}] * 20)


def test_divergence_names_the_farthest_role() -> None:
    messages = watch(Divergence(), [{"kl/near": 0.1, "kl/far": 2.0}] * 3)
    assert "role 'far'" in messages[3]


def test_a_gradient_spike_is_reported_and_does_not_become_the_measure() -> None:
    norms = [1.0] * 15 + [50.0] + [1.0] * 5 + [50.0]
    assert list(watch(GradientSpike(), curve(gradient_norm=norms))) == [16, 22]
    assert not watch(GradientSpike(), curve(gradient_norm=[100.0] + [1.0] * 5))  # none in the first steps
    assert not watch(GradientSpike(), curve(gradient_norm=(2.0 ** np.linspace(0, 8, 60)).tolist()))  # slow growth


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_anything_not_finite(value: float) -> None:
    assert "kl/reference" in watch(NotFinite(), [{"reward": 0.1}, {"reward": 0.2, "kl/reference": value}])[2]


@pytest.mark.parametrize("alarm", ALARMS.values(), ids=ALARMS)
def test_steps_without_the_metric_are_passed_over(alarm: Alarm) -> None:
    assert not watch(alarm, [{"loss": 0.1}] * 100)


@pytest.mark.parametrize("alarm", ALARMS.values(), ids=ALARMS)
def test_the_state_does_not_grow_with_the_run(alarm: Alarm) -> None:
    rng = np.random.default_rng(0)
    names = ["entropy", "reward", "solved", "completion_tokens", "gradient_norm", "truncated", "zero_variance"]
    state, sizes = alarm.start(), []
    for _ in range(300):
        metrics = {name: float(rng.uniform(0.2, 0.4)) for name in names}
        state, _ = alarm.check(state, Readings(metrics=metrics))
        sizes.append(len(json.dumps(state)))
    assert max(sizes[200:]) <= max(sizes[:200]) + 20


def test_the_planted_collapse_is_found_within_five_steps() -> None:
    entropy, reward = [2.39, 1.1, 0.18, 0.1, 0.1], [0.81, 0.5, 0.3, 0.2, 0.2]
    messages = watch(Collapse(), curve(entropy=entropy, reward=reward, solved=reward))
    assert min(messages) == 4
    assert "entropy has fallen to 0.1 nats per token from 2.4 in" in messages[4] and "lr=auto" in messages[4]
    learns = curve(entropy=entropy, reward=[0.2, 0.4, 0.6, 0.8, 0.9], solved=[0.2] * 5)
    assert not watch(Collapse(), learns), "a policy that stops guessing and is rewarded for it"
    assert not watch(Collapse(), curve(entropy=[-0.1, -3.0, -5.0, -5.0], reward=[0.5] * 4)), "a density"


def test_a_fall_of_held_out_accuracy_beyond_its_interval_is_a_collapse() -> None:
    steps: Steps = [{"loss": 0.0}] * 5

    def found(before: int, after: int) -> dict[int, str]:
        state, messages, evaluations = Collapse().start(), {}, [{**evaluation(before), "step": 7}]
        for step, metrics in enumerate(steps, 8):
            if step == 8:  # also where the first look comes in the stage's first step
                evaluations.append({**evaluation(after), "step": 8})
            state, message = Collapse().check(state, Readings(metrics=metrics, evaluations=evaluations, step=step))
            messages |= {step - 7: message} if message else {}
        return messages

    assert "held-out accuracy is 19.5 % after 90.0 %" in found(180, 39)[1]
    assert not found(180, 172), "within the interval"
    assert not found(39, 180)


def test_a_divergence_that_grows_is_a_collapse_and_a_large_one_from_the_start_is_none() -> None:
    far = [{"kl/teacher": 4.0}, {"kl/teacher": 4.5}, {"kl/teacher": 3.0}]
    assert not watch(Collapse(), far)
    assert "after 0.1" in watch(Collapse(), [{"kl/reference": 0.1}, {"kl/reference": 3.5}])[2]


def test_a_reward_that_constraints_leave_no_weight() -> None:
    def weights(reward: float, steps: int) -> list[dict[str, float]]:
        return [{"weight/reward": reward, "weight/long": reward - 1.0, "weight/brief": 0.0}] * steps

    raised = watch(RewardWeight(), [*weights(0.3, 5), *weights(0.02, 6)])
    assert min(raised) == 10 and "0.020 of the weight, constraint long 0.980" in raised[10]
    assert not watch(RewardWeight(), [*weights(0.02, 4), *weights(0.3, 1), *weights(0.02, 4)])
    assert not watch(RewardWeight(), [{"reward": 1.0}] * 9)
