"""From scored groups to a batch with credit, by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.penalties.kl import KL
from posttrain.errors import AlarmStop
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.signals import BEHAVIOR_LOGP, OLD_LOGP, Signal, logp_of
from posttrain.stages.loss import combine
from posttrain.stages.rl.collect import split_failed, stop_if_grading_fails, unaided
from posttrain.stages.rl.credit import batch_of, token_rewards
from posttrain.stages.rl.metrics import rollout_metrics, signal_metrics, transcript
from posttrain.stages.rl.signals import signals_for
from posttrain.training.packing import example_of
from posttrain.types import Group, PerToken, Score, Segment, Task, Tokens, Trajectory
from tests.builders import random_tokens

TASK = Task(key="t", prompt="p")


def segment(actor: str, count: int, *, reward: float = 0.0, logp: float = -1.0) -> Segment:
    trained = actor == "policy"
    return Segment(
        actor=actor,
        token_ids=np.arange(count),
        trained=trained,
        logp=np.full(count, logp, np.float32) if trained else None,
        reward=reward,
    )


def rollout(value: float, *segments: Segment, status: str = "ok") -> Trajectory:
    score = Score(value=value, status=status)  # type: ignore[arg-type]
    segments = segments or (segment("prompt", 2), segment("policy", 3))
    return Trajectory(task=TASK, segments=segments, stop_reason="stop", score=score)


def test_the_score_lands_on_the_last_trained_token() -> None:
    assert token_rewards(rollout(0.75), []).tolist() == [0.0, 0.0, 0.75]


def test_turn_rewards_land_where_the_turn_was_last_written() -> None:
    turns = (
        segment("prompt", 2),
        segment("policy", 2),
        segment("environment", 4, reward=0.25),
        segment("policy", 1, reward=0.5),
        segment("environment", 1),
    )
    assert token_rewards(rollout(1.0, *turns), []).tolist() == [0.0, 0.25, 1.5]


def test_a_reward_before_anything_was_written_falls_on_the_first_token() -> None:
    turns = (segment("environment", 2, reward=0.5), segment("policy", 2))
    assert token_rewards(rollout(0.0, *turns), []).tolist() == [0.5, 0.0]


def test_penalties_are_added_token_by_token() -> None:
    penalty = np.array([-0.1, 0.2, 0.0], np.float32)
    np.testing.assert_allclose(token_rewards(rollout(1.0), [penalty, penalty]), [-0.2, 0.4, 1.0], atol=1e-7)


def test_a_kl_in_the_reward_lowers_the_return_by_the_sampled_divergence() -> None:
    group = Group(trajectories=(rollout(1.0), rollout(0.0)))
    signals = {logp_of("reference"): tuple(np.array([-1.5, -1.0, -3.0], np.float32) for _ in group)}
    batch = batch_of([group], signals, {"kl": KL(coefficient=0.1, form="k1", where="reward")}, 0.5)
    # log p - log reference = 0.5, 0, 2
    np.testing.assert_allclose(batch.token_rewards[0], [-0.05, 0.0, 0.8], atol=1e-6)
    np.testing.assert_allclose(batch.return_N, [0.75, -0.25], atol=1e-6)
    assert batch.progress == 0.5
    # k3 of gaps -0.5, 0, -2: exp(gap) - 1 - gap
    by_hand = np.mean([np.exp(-0.5) - 0.5, 0.0, np.exp(-2.0) + 1.0])
    assert signal_metrics(batch)["kl/reference"] == pytest.approx(by_hand, abs=1e-6)


def test_an_exact_divergence_is_reported_in_place_of_an_estimate() -> None:
    group = Group(trajectories=(rollout(1.0),))
    exact = Signal("reverse_kl", of="reference", old=True)
    numbers = {logp_of("reference"): [-2.0] * 3, exact: [0.1, 0.2, 0.3], logp_of("teacher"): [-1.0] * 3}
    signals = {signal: (np.array(row, np.float32),) for signal, row in numbers.items()}
    found = signal_metrics(batch_of([group], signals, {}, 0.5))
    assert found == {"kl/reference": pytest.approx(0.2), "kl/teacher": 0.0}


def test_segments_that_rollouts_share_count_once() -> None:
    prompt, trunk = segment("prompt", 2), segment("policy", 4, logp=-2.0)
    twins = [rollout(1.0, prompt, trunk, segment("policy", 1, logp=-1.0)) for _ in range(2)]
    metrics = rollout_metrics([Group(trajectories=tuple(twins))])
    assert (metrics["sampled_tokens"], metrics["completion_tokens"]) == (6, 5)
    assert metrics["sampled_nll"] == pytest.approx((4 * 2 + 2 * 1) / 6)


def test_the_entropy_is_that_of_what_was_drawn_from_and_not_minus_what_was_drawn() -> None:
    drawn = replace(segment("policy", 2, logp=-1.0), entropy=np.array([0.5, 2.5], np.float32))
    metrics = rollout_metrics([Group(trajectories=(rollout(1.0, segment("prompt", 2), drawn),))])
    assert (metrics["entropy"], metrics["sampled_nll"]) == (1.5, 1.0)


def test_rollouts_that_could_not_be_scored_are_split_off_one_by_one() -> None:
    broken = rollout(float("nan"), status="error")
    kept, dropped = split_failed(
        [Group(trajectories=(rollout(1.0), broken, rollout(0.0)), key="a"), Group(trajectories=(broken,), key="b")]
    )
    assert [(g.key, [t.score.value for t in g if t.score]) for g in kept] == [("a", [1.0, 0.0])]
    assert [(d.group.key, len(d.group), d.reason) for d in dropped] == [
        ("a", 1, "grader error"),
        ("b", 1, "grader error"),
    ]


def test_metrics_of_a_step_leave_failed_scores_out() -> None:
    cut = replace(rollout(0.0, status="wrong"), stop_reason="length")
    groups = [
        Group(trajectories=(rollout(1.0), cut)),
        Group(trajectories=(rollout(0.5), rollout(0.5), rollout(float("nan"), status="error"))),
    ]
    metrics = rollout_metrics(groups)
    assert metrics["reward"] == pytest.approx(0.5)
    assert metrics["solved"] == pytest.approx(3 / 4)
    assert metrics["grader_errors"] == pytest.approx(1 / 5)
    assert metrics["zero_variance"] == pytest.approx(1 / 2)
    assert metrics["truncated"] == pytest.approx(1 / 5)
    assert metrics["completion_tokens"] == 3.0
    assert metrics["sampled_nll"] == pytest.approx(1.0)
    assert "entropy" not in metrics, "these were not drawn by a sampler that gives it"
    assert metrics["sampled_tokens"] == 15


def test_parts_of_a_reward_are_averaged_by_name() -> None:
    parts = {"format": Score(value=1.0, status="ok"), "answer": Score(value=0.0, status="wrong")}
    whole = replace(rollout(1.0), score=Score(value=1.0, status="ok", parts=parts))
    metrics = rollout_metrics([Group(trajectories=(whole, rollout(0.0)))])
    assert metrics["reward/format"] == 1.0
    assert metrics["reward/answer"] == 0.0


def test_grading_may_fail_up_to_a_bound() -> None:
    broken = replace(
        rollout(0.0), score=Score(value=float("nan"), status="error", explanation="no connection to the judge")
    )
    group = Group(trajectories=(rollout(1.0), rollout(1.0), broken))
    stop_if_grading_fails([group], 0.5)
    with pytest.raises(
        AlarmStop, match=r"1 of 3 rollouts of this step could not be scored.*no connection to the judge"
    ):
        stop_if_grading_fails([group], 1 / 3)


def test_a_loss_is_the_corrected_objective_plus_the_penalties() -> None:
    tokens = random_tokens(seed=0)

    def objective(given: Tokens) -> PerToken:
        return PerToken(loss_T=2.0 * given.logp_T, metrics={"seen": given.logp_T})

    class Halved:
        def __call__(self, given: Tokens) -> object:
            return 0.5 * (given.logp_T.detach() * 0 + 1)

    class One:
        def in_loss(self, given: Tokens) -> PerToken:
            return PerToken(loss_T=given.logp_T.detach() * 0 + 1, metrics={"term": given.logp_T})

    combined = combine(objective, {"extra": One()}, Halved())(tokens)  # type: ignore[arg-type, dict-item]
    np.testing.assert_allclose(combined.loss_T.detach(), tokens.logp_T.detach() + 1.0)
    assert set(combined.metrics) == {"seen", "correction", "extra/term"}


def prefixed(prefix: int, own: int) -> Trajectory:
    """A rollout whose prefix is a demonstration of `prefix` tokens, followed by `own` sampled ones."""
    shown = Segment(actor="demonstration", token_ids=np.arange(prefix), trained=True)
    parts = (segment("prompt", 2), shown, *([segment("policy", own)] if own else []))
    return rollout(1.0, *parts)


def test_rollouts_with_demonstrated_tokens_are_not_the_policys_own() -> None:
    own, hybrid, shown = rollout(0.0, status="wrong"), prefixed(2, 3), prefixed(4, 0)
    group = Group(trajectories=(own, own, hybrid, shown), key="t")
    assert [t.demonstrated for t in group] == [False, False, True, True]
    assert (group.solved, unaided([group])[0].trajectories) == (0.0, (own, own))
    assert unaided([Group(trajectories=(shown,))]) == []
    metrics = rollout_metrics([group])
    assert (metrics["reward"], metrics["solved"]) == (0.0, 0.0)
    assert metrics["completion_tokens"] == 3.0
    assert metrics["grader_errors"] == 0.0


def test_a_policy_learns_from_demonstrations_and_a_role_from_its_own_tokens() -> None:
    trajectory = prefixed(2, 3)
    columns = {BEHAVIOR_LOGP: trajectory.behavior_logp}
    assert example_of(trajectory, columns, role="policy").num_trained == 5
    assert example_of(trajectory, columns, role=None).num_trained == 5
    assert example_of(trajectory, columns, role="teacher").num_trained == 0


def test_demonstrations_get_the_learners_own_log_probabilities_to_compare_with(tiny_folder: Path) -> None:
    """Also a hybrid's prefix; sampled tokens keep the sampler's. Without demonstrations nothing is computed."""
    policy = load_policy("policy", Model(source=str(tiny_folder)), {}, torch.device("cpu"))
    own, hybrid, shown = rollout(0.0), prefixed(2, 3), prefixed(4, 0)
    groups = [Group(trajectories=(own, hybrid, shown))]
    assert signals_for([Group(trajectories=(own,))], frozenset(), {"policy": policy}, 100, 1.0) == {}
    found = signals_for(groups, frozenset(), {"policy": policy}, 100, 1.0)
    exact = signals_for(groups, frozenset({OLD_LOGP}), {"policy": policy}, 100, 1.0)
    assert found.keys() == exact.keys() == {OLD_LOGP}
    assert found[OLD_LOGP][0].tolist() == own.behavior_logp.tolist()
    assert found[OLD_LOGP][1][2:].tolist() == hybrid.behavior_logp[2:].tolist()
    np.testing.assert_allclose(found[OLD_LOGP][1][:2], exact[OLD_LOGP][1][:2], rtol=1e-5)
    np.testing.assert_allclose(found[OLD_LOGP][2], exact[OLD_LOGP][2], rtol=1e-5)


def test_transcripts_of_several_turns_are_by_turn() -> None:
    ids = np.arange(1)
    said = (
        Segment(actor="prompt", token_ids=ids, text="p"),
        Segment(actor="policy", token_ids=ids, trained=True, text="go"),
        Segment(actor="environment", token_ids=ids, turn=1, text="no"),
        Segment(actor="policy", token_ids=ids, trained=True, turn=1, text="end"),
    )
    many = Trajectory(task=Task(key="k", prompt="p"), segments=said, stop_reason="stop")
    assert transcript(many) == "'go' -> 'no' 'end'"
    assert transcript(replace(many, segments=said[:2])) == "'go'"
