"""Metrics of a step's rollouts."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from posttrain.components.environments import Episode
from posttrain.components.rollouts import Earlier, Hint, Row, Spans
from posttrain.signals import Signal
from posttrain.stages.rl.collect import learned_by, unaided
from posttrain.statistics.calibration import calibration
from posttrain.types import GIVEN, Batch, FloatArray, Group, IntArray, Segment, Trajectory


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of a step's rollouts, before any filter. Demonstrations and recorded completions are not counted.

    Outcomes and lengths are of episodes: one of several rollouts counts once. ``sampled_tokens`` are those that a role
    learns from; a stage replaces the number by the tokens of all samplers.
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
    episodes = outcomes(trajectories)
    scores = [t.score for t in episodes if t.score is not None and t.score.status != "error"]
    metrics = recorded | {
        "completion_tokens": sum(t.num_trained for t in trajectories) / len(episodes),
        "truncated": float(np.mean([t.stop_reason == "length" for t in episodes])),
        "grader_errors": float(np.mean(failed)),
        "sampled_tokens": float(np.isfinite(everything).sum()),
        "repeated": float(np.mean([repeated(t.completion_ids) for t in trajectories])),
        "duplicates": float(np.mean([share for group in groups for share in duplicated(group)])),
    }
    metrics |= sampling_metrics(groups) | turn_metrics(episodes) | tag_metrics(trajectories)
    metrics |= hint_metrics(groups)
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
        values = [[t.score.value + t.turn_reward for t in g if t.score and t.score.status != "error"] for g in groups]
        metrics["zero_variance"] = float(np.mean([len(set(v)) <= 1 for v in values]))
    return metrics


def outcomes(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """One rollout for each outcome; all of them where none counts."""
    rows = [t.fact(Row) for t in trajectories]
    return [t for t, row in zip(trajectories, rows, strict=True) if row is None or row.counts] or list(trajectories)


def sampling_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Means over sampled tokens in nats: ``entropy`` of the distributions that they were drawn from, where the sampler
    gives it, and ``sampled_nll``, minus the log-probability of what was drawn, whose expected value is that entropy.
    """
    entropies = [s.entropy for s in _segments(groups) if s.entropy is not None]
    found = {"entropy": np.concatenate([np.zeros(0), *entropies])}
    found["sampled_nll"] = -np.concatenate([np.zeros(0), *_sampled(groups)])
    known = {name: values[np.isfinite(values)] for name, values in found.items()}
    return {name: float(np.mean(values, dtype=np.float64)) for name, values in known.items() if len(values)}


def _sampled(groups: Sequence[Group]) -> list[FloatArray]:
    """Log-probabilities of all sampled tokens."""
    return [s.logp for s in _segments(groups) if s.logp is not None]


def _segments(groups: Sequence[Group]) -> list[Segment]:
    """What was sampled. A segment that several rollouts share, as in a tree, counts once."""
    written = (s for group in groups for t in group for s in t.segments if s.trained and s.actor not in GIVEN)
    return list({id(s): s for s in written}.values())


def repeated(token_ids: IntArray, window: int = 8) -> float:
    """Share of a completion's windows that occurred in it before, in [0, 1]; 0 if it is shorter than two windows."""
    if len(token_ids) < 2 * window:
        return 0.0
    data, size = token_ids.tobytes(), token_ids.itemsize
    windows = [data[begin : begin + window * size] for begin in range(0, len(data) - (window - 1) * size, size)]
    return 1.0 - len(set(windows)) / len(windows)


def duplicated(group: Group) -> list[float]:
    """For each rollout 1 if another one of the group has the same tokens, else 0."""
    written = [t.completion_ids.tobytes() for t in group]
    counts = Counter(written)
    return [float(counts[own] > 1) for own in written]


def turn_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Metrics of rollouts in an environment, without those that failed, but for the shares of all that failed in a way
    that is counted; empty if there are none.
    """
    episodes = [episode for t in trajectories if (episode := t.fact(Episode)) is not None and not t.failure]
    failed = [name for t in trajectories if t.failure and (own := t.fact(Episode)) for name in own.measures or {}]
    metrics = {f"failures/{name}": count / len(trajectories) for name, count in sorted(Counter(failed).items())}
    if not episodes:
        return metrics
    metrics |= {
        "turns": float(np.mean([e.turns for e in episodes])),
        "turns/invalid": sum(e.invalid_turns for e in episodes) / max(1, sum(e.turns for e in episodes)),
        "turns/reward": float(np.mean([sum(e.turn_rewards) for e in episodes])),
    }
    measured = [e.measures or {} for e in episodes]
    for name in sorted({name for measures in measured for name in measures}):
        metrics[f"world/{name}"] = float(np.mean([measures[name] for measures in measured if name in measures]))
    return metrics


def tag_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean number of closed parts with each tag that was looked for; empty if none was."""
    found = [spans for t in trajectories if (spans := t.fact(Spans)) is not None]
    tags = sorted({tag for spans in found for tag in spans.closings})
    return {f"tags/{tag}": float(np.mean([len(spans.closings[tag]) for spans in found])) for tag in tags}


def hint_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Shares of the groups that were given a hint, by the share of the solution in it, and ``hints/answer`` of those
    whose hint has the answer in it; empty if none was given one.
    """
    hints = [next((fact for t in group if (fact := t.fact(Hint)) is not None), None) for group in groups]
    given = [hint for hint in hints if hint is not None]
    if not given:
        return {}
    shares = Counter(f"hints/{hint.hint_share:g}" for hint in given)
    found = {name: count / len(groups) for name, count in sorted(shares.items())}
    return {
        "hinted": len(given) / len(groups),
        **found,
        "hints/answer": sum(h.hint_has_answer for h in given) / len(groups),
    }


def metrics_by_role(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of a step's rollouts: the policy's with plain names, other roles' with the role as a prefix."""
    metrics: dict[str, float] = {}
    for role in sorted(set().union(*(t.learners for group in groups for t in group))):
        own = rollout_metrics(learned_by(role, groups))
        metrics |= own if role == "policy" else {f"{role}/{name}": value for name, value in own.items()}
    return metrics


def recorded_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Metrics of the step's recorded completions; empty if there are none."""
    recorded = [t for g in groups for t in g if any(s.actor == "recorded" for s in t.segments)]
    scores = [t.score for t in recorded if t.score is not None and t.score.status != "error"]
    metrics = {"recorded/tokens": float(np.mean([t.num_trained for t in recorded]))} if recorded else {}
    if scores:
        metrics["recorded/reward"] = float(np.mean([s.value for s in scores]))
        metrics["recorded/solved"] = float(np.mean([s.status == "ok" for s in scores]))
    return metrics


def signal_metrics(batch: Batch, trained: Collection[str] | None = None) -> dict[str, float]:
    """KL(policy || role) for each reference role, in nats per token: exact where it was computed, else k3, which is
    never negative.

    The estimate is over the tokens that were sampled in this step, without recorded ones and earlier ones, and of
    writers among the `trained` roles; None are all.
    """
    metrics = {}
    new = [t.fact(Earlier) is None for t in batch.trajectories]
    own = [(s, fresh) for t, fresh in zip(batch.trajectories, new, strict=True) for s in t.segments if s.trained]
    kept = [fresh and s.actor not in GIVEN and (trained is None or s.learner in trained) for s, fresh in own]
    now = [keep for (s, _), keep in zip(own, kept, strict=True) for _ in range(len(s))]
    sampled = np.concatenate([t.behavior_logp for t in batch.trajectories]).astype(np.float64)
    sampled[~np.array(now, bool)] = np.nan
    for signal, values in batch.signals.items():
        if signal.name == "reverse_kl":
            exact = np.concatenate(values).astype(np.float64)
            metrics[f"kl/{signal.of}"] = float(np.mean(exact)) if len(exact) else 0.0
        elif signal.name == "logp" and signal.of and Signal("reverse_kl", of=signal.of, old=True) not in batch.signals:
            gap = np.concatenate(values).astype(np.float64) - sampled
            gap = gap[np.isfinite(gap)]
            metrics[f"kl/{signal.of}"] = float(np.mean(np.expm1(gap) - gap)) if len(gap) else 0.0
    return metrics


def describe(groups: Sequence[Group]) -> list[str]:
    """Describes scored rollouts in a few lines, with the first group's rollouts in full."""
    metrics = rollout_metrics(groups)
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
    lines = [
        f"{sum(map(len, groups))} rollouts of {len(groups)} tasks: {numbers}",
        f"first task: {groups[0].trajectories[0].task.prompt!r}",
    ]
    for trajectory in groups[0]:
        score = trajectory.score
        assert score is not None, "rollouts are described after they were scored"
        lines.append(f"[{score.status} {score.value:g}] {transcript(trajectory)} {score.explanation}")
    return lines


def transcript(trajectory: Trajectory) -> str:
    """The text after the prompt, turn by turn if there are several; observations are marked by an arrow."""
    segments = [s for s in trajectory.segments if s.actor != "prompt"]
    if all(s.turn == 0 for s in segments):
        return repr(trajectory.completion)
    return " ".join(f"-> {s.text!r}" if s.actor == "environment" else repr(s.text) for s in segments)
