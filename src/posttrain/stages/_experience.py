"""The straight way from scored groups to a batch with credit: small steps that every reinforcement stage shares."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from posttrain.components.corrections import Correction
from posttrain.components.filters import Dropped, Filter
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.rewards import Reward, RewardContext, judged
from posttrain.components.rollouts import Rollout
from posttrain.engines import Sampler
from posttrain.errors import AlarmStop
from posttrain.runs.record import StepRecord
from posttrain.statistics.calibration import calibration
from posttrain.types import (
    GIVEN,
    Batch,
    Credit,
    FloatArray,
    Group,
    IntArray,
    PerToken,
    Task,
    Tokens,
    Trajectory,
    value_of,
)

if TYPE_CHECKING:
    from posttrain.policies import Policy


class _Bounds(TypedDict):
    """What every forward pass over some examples is told."""

    max_tokens: int
    temperature: float


async def collect(
    tasks: Sequence[Task],
    rollout: Rollout,
    reward: Reward,
    samplers: Sequence[Mapping[str, Sampler]],
    context: RewardContext,
) -> list[Group]:
    """Attempt and judge every task, all at once; the groups come back in the order of the tasks."""

    async def one(task: Task, bound: Mapping[str, Sampler]) -> list[Group]:
        own = replace(context, samplers=bound)
        return await rollout.collect_judged(task, bound, lambda group: judged(group, reward, own))

    collected = await asyncio.gather(*(one(task, bound) for task, bound in zip(tasks, samplers, strict=True)))
    return [group for groups in collected for group in groups]


def set_aside_failed(groups: Sequence[Group]) -> tuple[list[Group], list[Dropped]]:
    """Take out the trajectories whose grader failed: they are neither right nor wrong, and are never learned from."""
    kept, dropped = [], []
    for group in groups:
        sound = tuple(t for t in group if t.score is not None and t.score.status != "error")
        failed = tuple(t for t in group if t.score is None or t.score.status == "error")
        if failed:
            dropped.append(Dropped(group=replace(group, trajectories=failed), reason="grader error"))
        if sound:
            kept.append(replace(group, trajectories=sound))
    return kept, dropped


def signals_for(
    groups: Sequence[Group],
    needs: frozenset[str],
    models: "Mapping[str, Policy]",
    max_tokens: int,
    temperature: float,
    *,
    role: str = "policy",
    critic: str = "critic",
) -> dict[str, tuple[FloatArray, ...]]:
    """Costly signals of every trained token, one forward pass a model: ``value`` from the critic, ``<other>_logp``,
    ``<other>_entropy`` or ``<other>_velocity`` of another model, ``<other>_kl`` the exact divergence from it of the
    model in the `role` that learns. The ``<other>`` model ``old`` is the one that learns, as it is now.

    Where there are demonstrations to learn from, ``old_logp`` is among them: the sampler's, and for tokens that nobody
    sampled the learner's. `max_tokens` bounds a pass; `temperature` is that of the distribution which the tokens were
    drawn from.
    """
    behavior = [trajectory.behavior_logp for group in groups for trajectory in group]
    unsampled = [i for i, logp in enumerate(behavior) if np.isnan(logp).any() and "old_logp" not in needs]
    if not needs and not unsampled:
        return {}
    from posttrain.training.learner import evaluate_examples
    from posttrain.training.packing import example_of

    examples = [example_of(trajectory, {}) for group in groups for trajectory in group]
    signals: dict[str, tuple[FloatArray, ...]] = {}
    bounds: _Bounds = {"max_tokens": max_tokens, "temperature": temperature}
    for need in sorted(needs):
        asked, _, name = (critic, "", "value") if need == "value" else need.rpartition("_")
        others = {}
        if name == "kl":
            asked, name, others = "old", f"{asked}_reverse_kl", {asked: models[asked]}
        policy = models[role if asked == "old" else asked]
        results = evaluate_examples(policy, examples, frozenset({name}), others=others, **bounds)
        signals[need] = tuple(result[name] for result in results)
    if unsampled:
        results = evaluate_examples(models[role], [examples[i] for i in unsampled], frozenset({"logp"}), **bounds)
        for i, result in zip(unsampled, results, strict=True):
            behavior[i] = np.where(np.isnan(behavior[i]), result["logp"], behavior[i])
        signals["old_logp"] = tuple(behavior)
    return signals


def token_rewards(trajectory: Trajectory, penalties: Sequence[FloatArray]) -> FloatArray:
    """[T] reward of each trained token: penalties where they fall, each turn's reward at the last trained token up to
    the end of that turn's segment, the score at the last token.
    """
    rewards = np.zeros(trajectory.num_trained, np.float64)
    if not len(rewards):
        return rewards.astype(np.float32)
    for penalty in penalties:
        rewards += penalty
    seen = 0
    for segment in trajectory.segments:
        seen += len(segment) if segment.trained else 0
        if segment.reward:
            rewards[max(seen - 1, 0)] += segment.reward
    rewards[-1] += value_of(trajectory)
    return rewards.astype(np.float32)


def batch_of(
    groups: Sequence[Group],
    signals: Mapping[str, tuple[FloatArray, ...]],
    penalties: Mapping[str, Penalty],
    progress: float,
) -> Batch:
    """All that an advantage may look at."""
    trajectories = [t for group in groups for t in group]
    rewards = []
    for i, trajectory in enumerate(trajectories):
        own = {name: values[i] for name, values in signals.items()}
        taken = [penalty.in_reward(trajectory, own) for penalty in penalties.values()]
        rewards.append(token_rewards(trajectory, [t for t in taken if t is not None]))
    return Batch(groups=tuple(groups), signals=signals, token_rewards=tuple(rewards), progress=progress)


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """What a step's attempts were like, before any filter. What came with the task is no attempt of its own.

    ``sampled_tokens`` are those that somebody learns from; a stage says in their place what all samplers wrote.
    """
    failed = [t.score is None or t.score.status == "error" for group in groups for t in group]
    everything = np.concatenate([np.zeros(0), *_sampled(groups)])
    recorded = recorded_metrics(groups)
    groups = unaided(groups)
    trajectories = [t for group in groups for t in group]
    if not trajectories:
        return recorded | {
            "grader_errors": float(np.mean(failed)),
            "sampled_tokens": float(np.isfinite(everything).sum()),
        }
    scores = [t.score for t in trajectories if t.score is not None and t.score.status != "error"]
    logps = np.concatenate([np.zeros(0), *_sampled(groups)])
    logps = logps[np.isfinite(logps)]
    metrics = recorded | {
        "completion_tokens": float(np.mean([t.num_trained for t in trajectories])),
        "truncated": float(np.mean([t.stop_reason == "length" for t in trajectories])),
        "grader_errors": float(np.mean(failed)),
        "sampled_tokens": float(np.isfinite(everything).sum()),
        "repeated": float(np.mean([repeated(t.completion_ids) for t in trajectories])),
        "duplicates": float(np.mean([share for group in groups for share in duplicated(group)])),
    }
    if len(logps):
        # An unbiased estimate of the policy's mean entropy per token, in nats, without any extra computation.
        metrics["entropy"] = -float(np.mean(logps, dtype=np.float64))
    metrics |= turn_metrics(trajectories)
    if scores:
        metrics["reward"] = float(np.mean([s.value for s in scores]))
        metrics["solved"] = float(np.mean([s.status == "ok" for s in scores]))
        for name in sorted({name for s in scores for name in s.parts}):
            metrics[f"reward/{name}"] = float(np.mean([s.parts[name].value for s in scores if name in s.parts]))
        stated = [(s.confidence, s.status == "ok") for s in scores if s.confidence is not None]
        if stated:
            measured = calibration([q for q, _ in stated], [right for _, right in stated])
            metrics |= {"calibration/stated": len(stated) / len(scores)}
            metrics |= {f"calibration/{name}": number for name, number in measured.items()}
        values = [[t.score.value for t in g if t.score and t.score.status != "error"] for g in groups]
        metrics["zero_variance"] = float(np.mean([len(set(v)) <= 1 for v in values]))
    return metrics


def _sampled(groups: Sequence[Group]) -> list[FloatArray]:
    """Log-probabilities of all that was sampled; a segment that several attempts share, as in a tree, counts once."""
    written = (s for group in groups for t in group for s in t.segments if s.trained and s.actor not in GIVEN)
    segments = {id(s): s for s in written}
    return [s.logp for s in segments.values() if s.logp is not None]


def repeated(token_ids: IntArray, window: int = 8) -> float:
    """Share of a completion's windows that have occurred in it before, in [0, 1]; 0 for one without two windows."""
    if len(token_ids) < 2 * window:
        return 0.0
    data, size = token_ids.tobytes(), token_ids.itemsize
    windows = [data[begin : begin + window * size] for begin in range(0, len(data) - (window - 1) * size, size)]
    return 1.0 - len(set(windows)) / len(windows)


def duplicated(group: Group) -> list[float]:
    """For each attempt 1 if another one of the group is the same, token by token, else 0."""
    written = [t.completion_ids.tobytes() for t in group]
    counts = Counter(written)
    return [float(counts[own] > 1) for own in written]


def turn_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """How attempts in a world went, where there are any that did not break off."""
    played = [t for t in trajectories if "turns" in t.info and not t.failure]
    if not played:
        return {}
    metrics = {
        "turns": float(np.mean([t.info["turns"] for t in played])),
        "turns/invalid": sum(t.info["invalid_turns"] for t in played) / max(1, sum(t.info["turns"] for t in played)),
        "turns/reward": float(np.mean([sum(t.info["turn_rewards"]) for t in played])),
    }
    for name in sorted({name for t in played for name in t.info["measures"]}):
        values = [t.info["measures"][name] for t in played if name in t.info["measures"]]
        metrics[f"world/{name}"] = float(np.mean(values))
    return metrics


def metrics_by_role(groups: Sequence[Group]) -> dict[str, float]:
    """What the attempts of a step were like: the policy's with plain names, other roles' with the role in front."""
    metrics: dict[str, float] = {}
    for role in sorted(set().union(*(t.learners for group in groups for t in group))):
        own = rollout_metrics(learned_by(role, groups))
        metrics |= own if role == "policy" else {f"{role}/{name}": value for name, value in own.items()}
    return metrics


def learned_by(role: str, groups: Sequence[Group]) -> list[Group]:
    """The attempts that a role learns from."""
    own = [replace(group, trajectories=tuple(t for t in group if role in t.learners)) for group in groups]
    return [group for group in own if len(group)]


def recorded_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """What the step's recorded completions were like, where it has any."""
    recorded = [t for g in groups for t in g if any(s.actor == "recorded" for s in t.segments)]
    scores = [t.score for t in recorded if t.score is not None and t.score.status != "error"]
    metrics = {"recorded/tokens": float(np.mean([t.num_trained for t in recorded]))} if recorded else {}
    if scores:
        metrics["recorded/reward"] = float(np.mean([s.value for s in scores]))
        metrics["recorded/solved"] = float(np.mean([s.status == "ok" for s in scores]))
    return metrics


def unaided(groups: Sequence[Group]) -> list[Group]:
    """The attempts that the policy made all by itself."""
    own = [replace(group, trajectories=tuple(t for t in group if not t.given)) for group in groups]
    return [group for group in own if len(group)]


def signal_metrics(batch: Batch) -> dict[str, float]:
    """Divergence of the sampling policy from each reference role, in nats per token: the exact one where it is known,
    else k3, which is never negative.

    Over the tokens that were sampled just now: recorded ones are another policy's.
    """
    metrics = {}
    now = [s.actor not in GIVEN for t in batch.trajectories for s in t.segments if s.trained for _ in range(len(s))]
    sampled = np.concatenate([t.behavior_logp for t in batch.trajectories]).astype(np.float64)
    sampled[~np.array(now, bool)] = np.nan
    for need, values in batch.signals.items():
        if need.endswith("_kl"):
            exact = np.concatenate(values).astype(np.float64)
            metrics[f"kl/{need.removesuffix('_kl')}"] = float(np.mean(exact)) if len(exact) else 0.0
        elif need.endswith("_logp") and need != "old_logp":
            gap = np.concatenate(values).astype(np.float64) - sampled
            gap = gap[np.isfinite(gap)]
            metrics[f"kl/{need.removesuffix('_logp')}"] = float(np.mean(np.expm1(gap) - gap)) if len(gap) else 0.0
    return metrics


def combine(
    objective: Objective, penalties: Mapping[str, Penalty], correction: Correction | None
) -> Callable[[Tokens], PerToken]:
    """One per-token loss: the objective, corrected, plus every penalty that acts in the loss."""

    def per_token(tokens: Tokens) -> PerToken:
        result = objective(tokens)
        loss_T, metrics = result.loss_T, dict(result.metrics)
        if correction is not None:
            factor_T = correction(tokens)
            loss_T, metrics["correction"] = loss_T * factor_T, factor_T
        for name, penalty in penalties.items():
            term = penalty.in_loss(tokens)
            if term is not None:
                loss_T = loss_T + term.loss_T
                metrics |= {f"{name}/{metric}": values for metric, values in term.metrics.items()}
        return PerToken(loss_T=loss_T, metrics=metrics)

    return per_token


def columns_of(batch: Batch, credit: Credit) -> list[dict[str, FloatArray]]:
    """For each trajectory, the [T] columns that the learner and the record take."""
    columns = []
    for i, trajectory in enumerate(batch.trajectories):
        own = {name: values[i] for name, values in batch.signals.items()}
        own["behavior_logp"] = trajectory.behavior_logp
        own.setdefault("old_logp", trajectory.behavior_logp)
        own["advantage"] = credit.advantages[i]
        if credit.value_targets:
            own["value_target"] = credit.value_targets[i]
        columns.append(own)
    return columns


def stop_if_grading_fails(groups: Sequence[Group], bound: float) -> None:
    """Raise `AlarmStop` with the evidence when the share of failed judgements reaches `bound`."""
    scores = [t.score for group in groups for t in group if t.score is not None]
    failed = [s for s in scores if s.status == "error"]
    if scores and len(failed) / len(scores) >= bound:
        raise AlarmStop(
            f"{len(failed)} of {len(scores)} judgements of this step failed, so there is nothing sound to learn from. "
            f"The first failure: {failed[0].explanation}. Mend the reward, or the world, and resume, or allow more "
            "with max_grader_errors."
        )


def describe(groups: Sequence[Group]) -> list[str]:
    """Judged attempts in a few lines, with the first group's attempts in full."""
    metrics = rollout_metrics(groups)
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
    lines = [
        f"{sum(map(len, groups))} attempts at {len(groups)} tasks: {numbers}",
        f"first task: {groups[0].trajectories[0].task.prompt!r}",
    ]
    for trajectory in groups[0]:
        score = trajectory.score
        assert score is not None, "attempts are described after they were judged"
        lines.append(f"[{score.status} {score.value:g}] {told(trajectory)} {score.explanation}")
    return lines


def told(trajectory: Trajectory) -> str:
    """What came after the prompt, turn by turn where there are several: what the world said stands after an arrow."""
    said = [s for s in trajectory.segments if s.actor != "prompt"]
    if all(s.turn == 0 for s in said):
        return repr(trajectory.completion)
    return " ".join(f"-> {s.text!r}" if s.actor == "environment" else repr(s.text) for s in said)


def filter_groups(
    filters: Mapping[str, Filter], states: dict[str, Mapping[str, Any]], groups: Sequence[Group], record: StepRecord
) -> list[Group]:
    """The groups to learn from; what is left out goes into the record with its reason."""
    kept, dropped = set_aside_failed(groups)
    for name, member in filters.items():
        states[name], kept, more = member(states[name], kept)
        dropped += more
    for offset, item in enumerate(dropped):
        record.drop(item.group, item.reason, index=len(kept) + offset)
    taught = [any(t.demonstrated for t in group) for group in kept]
    if any(t.demonstrated for group in groups for t in group):
        record.metrics["demonstrated"] = float(np.mean(taught)) if taught else 0.0
    return kept
