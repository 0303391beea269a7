"""Held-out evaluation: one greedy answer per task, and samples for pass@k.

The draws are a function of (seed, task key) alone: two models, or one model at two times, answer the same tasks with
the same draws, so comparisons are paired.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from posttrain.components.environments import Episode
from posttrain.components.rewards import Reward, RewardContext, joined, scored
from posttrain.components.rollouts import Rollout
from posttrain.datasets.holdout import VARIANT_OF
from posttrain.datasets.together import lists_in
from posttrain.engines import Sampler, Sampling, Server, answers, wait_for
from posttrain.evaluation.settings import Evaluation
from posttrain.statistics.calibration import calibration
from posttrain.statistics.intervals import wilson
from posttrain.statistics.pass_at_k import pass_at_k
from posttrain.statistics.voting import vote
from posttrain.types import Group, Score, Task, Trajectory

MOST_DOMAINS: Final = 20
"""Most domains of tasks whose accuracies a summary has."""


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """An evaluation: every answer with its score, and the summary."""

    trajectories: tuple[Trajectory, ...]
    """For each task the greedy answer (sample 0), then the sampled ones (1, 2, ...)."""
    summary: Mapping[str, Any]
    """``accuracy`` with ``accuracy_interval`` (95 %, Wilson), ``tasks``, ``correct``, ``mean_score``, ``errors``,
    ``mean_tokens``, ``truncated``; in environments of several turns ``mean_turns``, and ``mean_calls`` and
    ``mean_regret`` of those that measure ``calls`` and ``regret``; with samples, ``pass_at_k`` by k,
    and ``voted``, the accuracy of majority votes. Where tasks have several domains, at most 20,
    ``accuracy_by_domain``. Where tasks are variants of one another (field ``variant_of``),
    ``accuracy_of_all_variants``: the share of those of which all are correct. Where answers state a confidence,
    ``calibration`` of the greedy answers, and ``voted_by_confidence``."""


def evaluate(
    server: Server,
    tasks: Sequence[Task],
    verifier: Reward,
    settings: Evaluation,
    sampling: Sampling,
    rollout: Rollout | None = None,
    helpers: Mapping[str, Server] = MappingProxyType({}),
) -> Evaluated:
    """Answer and score every task. An answer that could not be scored is an error, not wrong, and is left out.

    Tasks are answered in the environment of the `rollout`, if it has one of several turns, with its `helpers` by role.
    """
    servers = {**helpers, "policy": server}

    async def run() -> list[list[Trajectory]]:
        if verifier.together is None:
            work = (answer(task, servers, verifier, settings, sampling, rollout) for task in tasks)
            return list(await asyncio.gather(*work))
        answered = await asyncio.gather(*(_answers(task, servers, settings, sampling, rollout) for task in tasks))
        return await _scored_together(lists_in(tasks, verifier.together), answered, verifier)

    answered = wait_for(run())
    return Evaluated(
        trajectories=tuple(t for ts in answered for t in ts), summary=summarize(answered, settings.correct_at)
    )


async def answer(
    task: Task,
    servers: Mapping[str, Server],
    verifier: Reward,
    settings: Evaluation,
    sampling: Sampling,
    rollout: Rollout | None,
) -> list[Trajectory]:
    """The scored answers to one task: greedy, then `settings.samples` sampled ones."""
    answers = await _answers(task, servers, settings, sampling, rollout)
    return list(await scored(Group(trajectories=tuple(answers), key=task.key), verifier, RewardContext()))


async def _scored_together(
    lists: Sequence[Sequence[int]], answered: Sequence[Sequence[Trajectory]], verifier: Reward
) -> list[list[Trajectory]]:
    """The answers to each task with their scores, by the places of the tasks of each list.

    The greedy answers of a list are one group, and so are the n-th samples.
    """
    found = [list(answers) for answers in answered]
    for places in lists:
        for n in range(max(len(answered[place]) for place in places)):
            own = [place for place in places if n < len(answered[place])]
            row = joined([Group(trajectories=(answered[place][n],)) for place in own], answered[own[0]][n].task.key)
            for place, trajectory in zip(own, await scored(row, verifier, RewardContext()), strict=True):
                found[place][n] = trajectory
    return found


async def _answers(
    task: Task,
    servers: Mapping[str, Server],
    settings: Evaluation,
    sampling: Sampling,
    rollout: Rollout | None,
) -> list[Trajectory]:
    """The answers to one task: greedy, then `settings.samples` sampled ones."""
    greedy = _bound(servers, task.key, "greedy")
    answers = await roll_out(task, greedy, 1, replace(sampling, temperature=0.0), rollout)
    if settings.samples:
        answers += await roll_out(task, _bound(servers, task.key), settings.samples, sampling, rollout, first=1)
    return answers


def _bound(servers: Mapping[str, Server], *key: str) -> dict[str, Sampler]:
    """A sampler of each role, with draws of its own."""
    return {
        role: server.bind("evaluation", *key, *(() if role == "policy" else (role,)))
        for role, server in servers.items()
    }


async def roll_out(
    task: Task,
    samplers: Mapping[str, Sampler],
    n: int,
    sampling: Sampling,
    rollout: Rollout | None,
    *,
    first: int = 0,
) -> list[Trajectory]:
    """`n` rollouts of a task, numbered from `first`: in the rollout's environment, or else one completion each."""
    episodes = rollout.held_out(n, sampling) if rollout is not None else None
    if episodes is not None:
        collected = [t for group in await episodes.collect(task, samplers) for t in group]
        return [replace(t, sample=first + i) for i, t in enumerate(collected)]
    sampler = samplers["policy"]
    prompt = sampler.prompt(task)
    completions = await sampler.sample(prompt.token_ids, n, sampling, prompt.vectors)
    return list(answers(task, prompt, completions, "policy", first=first))


def summarize(answered: Sequence[Sequence[Trajectory]], correct_at: float) -> dict[str, Any]:
    """The summary of an evaluation from its scored answers, by task."""
    greedy = [answers[0] for answers in answered]
    scores = [_score(t) for t in greedy]
    scored = [s for s in scores if s.status != "error"]
    correct = sum(s.value >= correct_at for s in scored)
    summary: dict[str, Any] = {
        "accuracy": correct / len(scored) if scored else None,
        "accuracy_interval": list(wilson(correct, len(scored))) if scored else None,
        "tasks": len(greedy),
        "correct": correct,
        "errors": len(scores) - len(scored),
        "mean_score": sum(s.value for s in scored) / len(scored) if scored else None,
        "mean_tokens": sum(t.num_trained for t in greedy) / max(len(greedy), 1),
        "truncated": sum(t.stop_reason == "length" for t in greedy) / max(len(greedy), 1),
    }
    by_domain: dict[str, list[bool]] = {}
    for trajectory, score in zip(greedy, scores, strict=True):
        if score.status != "error":
            by_domain.setdefault(trajectory.task.domain, []).append(score.value >= correct_at)
    if 1 < len(by_domain) <= MOST_DOMAINS and "" not in by_domain:
        summary["accuracy_by_domain"] = {name: sum(own) / len(own) for name, own in sorted(by_domain.items())}
    variants: dict[str, list[bool]] = {}
    for trajectory, score in zip(greedy, scores, strict=True):
        if score.status != "error" and trajectory.task.fields.get(VARIANT_OF) is not None:
            variants.setdefault(str(trajectory.task.fields[VARIANT_OF]), []).append(score.value >= correct_at)
    if any(len(own) > 1 for own in variants.values()):
        summary["accuracy_of_all_variants"] = sum(map(all, variants.values())) / len(variants)
    summary |= _episode_means(greedy)
    stated = [(s.confidence, s.value >= correct_at) for s in scored if s.confidence is not None]
    if stated:
        measured = calibration([q for q, _ in stated], [correct for _, correct in stated])
        summary["calibration"] = {"stated": len(stated) / len(scored), **measured}
    samples = min((len(answers) - 1 for answers in answered), default=0)
    if samples:
        sampled = [[s for s in map(_score, answers[1:]) if s.status != "error"] for answers in answered]
        counts = [(len(ss), sum(s.value >= correct_at for s in ss)) for ss in sampled]
        ks = [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256) if k <= samples]
        summary["pass_at_k"] = {str(k): _mean([pass_at_k(n, c, k) for n, c in counts if n >= k]) for k in ks}
        summary["voted"] = _mean([_voted(scores, correct_at) for scores in sampled if scores])
        if stated:
            summary["voted_by_confidence"] = _mean([_voted(s, correct_at, weighted=True) for s in sampled if s])
    return summary


def _episode_means(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean turns of the episodes, and means of calls and regret over those whose environment measures them."""
    episodes = [episode for t in trajectories if (episode := t.fact(Episode)) is not None]
    found = {"turns": [float(episode.turns) for episode in episodes]}
    for name in ("calls", "regret"):
        found[name] = [own[name] for episode in episodes if name in (own := episode.measures or {})]
    return {f"mean_{name}": sum(values) / len(values) for name, values in found.items() if values}


def _voted(scores: Sequence[Score], correct_at: float, *, weighted: bool = False) -> float:
    """1 if the answer that wins the vote is correct, else 0; `weighted` by confidence, 0 where none is stated."""
    weights = [s.confidence or 0.0 for s in scores] if weighted else None
    winner = vote([s.answer for s in scores], weights)
    return float(winner is not None and scores[winner].value >= correct_at)


def _score(trajectory: Trajectory) -> Score:
    assert trajectory.score is not None, "evaluated trajectories are scored"
    return trajectory.score


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
