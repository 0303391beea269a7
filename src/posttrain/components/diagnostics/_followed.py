"""Gold and proxy over the steps of a run that was rewarded by a reward model, from what it recorded."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from posttrain.components.diagnostics import Record
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.engines import Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.intervals import mean
from posttrain.types import Group, Segment, Task, Trajectory

STEPS: Final = 12
"""Steps that are read, evenly from the first to the last."""
ROLLOUTS: Final = 64
"""Rollouts of a step that are scored."""


def followed(record: Record, server: Server, gold: Reward, tasks: Sequence[Task], temperature: float) -> dict[str, Any]:
    """By step the proxy (the recorded reward), gold, and the KL from the policy that is served, estimated from the
    rollouts; the step with the largest gold, and the alarms.
    """
    known = {task.key: task for task in tasks}
    rows: list[dict[str, Any]] = []
    for step, rollouts in record.steps(STEPS):
        found = wait_for(_step(rollouts, known, server, gold, temperature))
        if found:
            rows.append(
                {"step": step, "rollouts": len(found[0])}
                | dict(zip(("proxy", "gold", "kl"), map(row, found), strict=True))
            )
    if not rows:
        raise UserError("no recorded rollout is of these tasks and has both scores; give the tasks of the run, or gold")
    peak = max(rows, key=lambda own: float(own["gold"]["mean"]))
    alarms = [{"step": step, "message": message} for step, message in record.alarms]
    return {"steps": rows, "peak_step": peak["step"], "alarms": alarms}


def row(values: Sequence[float]) -> dict[str, float]:
    """Mean and interval."""
    found = mean(np.array(values))
    return {"mean": found.value, "low": found.interval.low, "high": found.interval.high}


async def _step(
    rollouts: Sequence[Mapping[str, Any]], known: Mapping[str, Task], server: Server, gold: Reward, temperature: float
) -> list[list[float]]:
    """Proxy, gold and log-ratio of the rollouts of a step that have all three; empty for none."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in [one for one in rollouts if one["task_key"] in known and one["score_status"] != "error"][:ROLLOUTS]:
        groups.setdefault(one["task_key"], []).append(one)
    found: list[list[float]] = []
    for key, own in groups.items():
        group = Group(key=key, trajectories=tuple(_trajectory(known[key], one, n) for n, one in enumerate(own)))
        ratios = await asyncio.gather(*(_log_ratio(server, one, temperature) for one in own))
        for one, trajectory, ratio in zip(own, await scored(group, gold, RewardContext()), ratios, strict=True):
            if trajectory.score is not None and trajectory.score.status != "error":
                found.append([float(one["reward"]), trajectory.score.value, ratio])
    return [list(column) for column in zip(*found, strict=True)]


async def _log_ratio(server: Server, one: Mapping[str, Any], temperature: float) -> float:
    """Log of the probability of a rollout's tokens where they were sampled, over that of the served policy."""
    ids, trained = np.array(one["token_ids"], np.int64), np.array(one["trained"], bool)
    logp = await server.bind("followed").logp(ids, temperature=temperature)
    sampled = np.array(one["sampled_logp"], np.float64)
    return float((sampled[1:] - logp)[trained[1:]].sum())


def _trajectory(task: Task, one: Mapping[str, Any], sample: int) -> Trajectory:
    """The rollout, of which its text is scored."""
    ids, trained = np.array(one["token_ids"], np.int64), np.array(one["trained"], bool)
    own = Segment(actor="policy", token_ids=ids[trained], trained=True, text=one["completion"])
    prompt = Segment(actor="prompt", token_ids=ids[:1], text=str(one["prompt"]))
    return Trajectory(task=task, segments=(prompt, own), stop_reason=one["stop_reason"], sample=sample)
