"""Over-optimisation: what the best of n answers by a reward model are by the gold reward, for n from 1 to 64.

Source: Gao, Schulman and Hilton 2022, arXiv:2210.10760, section 3: the best of n by a proxy has a KL from the policy of
at most log n - (n - 1) / n, and its gold score rises and then falls. Every n is estimated from the same samples of a
task without bias (their equation for best of n, from Nakano et al. 2021, arXiv:2112.09332): of N answers sorted by the
proxy, the i-th is the best of n drawn ones with probability C(i - 1, n - 1) / C(N, n).

The verdict is about the gold score of the best of all against that at the peak, differences within tasks: ``shown``
where the interval is below 0, ``not shown``, or ``too little`` with fewer than 30 tasks. The peak is chosen on the
tasks of even place, and the difference is measured on the others.

Given a run instead of a policy and a reward model, the policy is its reference, or what it began with, or that of its
first checkpoint where neither is there; and beside the best of n stand the steps of the run: the recorded reward, gold
of the recorded rollouts, their KL from that policy, the step where gold is largest, and the steps of alarms.

    posttrain diagnose overoptimisation runs/NAME --gold match --page gold.html

Differs: equal proxies share their places in the order of sampling.
"""

from collections.abc import Sequence
from math import comb, log
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Picture, Subject
from posttrain.components.diagnostics._answers import answer_all, check_roles
from posttrain.components.diagnostics._followed import followed, row
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.types import FloatArray, Group

ROWS: Final = ()
FEWEST: Final = 30
Reals = NDArray[np.float64]


@frozen
class Overoptimisation(Diagnostic):
    """Gold and proxy of the best of n answers."""

    subjects: ClassVar[tuple[str, ...]] = ("models", "...")

    tasks: Tasks
    """Tasks that the policy answers."""
    first: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Tasks that are answered, from the first."""
    gold: Reward
    """The reward that is meant. It must not need models of a recipe."""
    n: Annotated[int, Field(ge=2, le=1024)] = 64
    """Answers to each task, and the largest n."""
    sampling: Sampling = Sampling()
    """Sampling of the answers."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample, score by both, and estimate every power of two."""
        check_roles(self.gold)
        if len(subjects) > 2:
            raise UserError(f"overoptimisation takes a run, or a policy and a reward model; got {len(subjects)} names")
        record = subjects[0].record() if len(subjects) == 1 else None
        own, rater = (record.policy, record.reward_model) if record is not None else subjects
        policy, model = own.load(), rater.load()
        server = own.serve(policy)
        groups = wait_for(self._answers(server))
        whole = [g for g in groups if all(t.score is not None and t.score.status != "error" for t in g)]
        if not whole:
            raise UserError(
                "no task has answers that could all be scored by the gold reward; give other tasks, or gold"
            )
        proxy_GN = _scores(model, rater.name, whole)
        gold_GN = np.array([[t.score.value for t in g if t.score is not None] for g in whole])
        found = curves(proxy_GN, gold_GN)
        values: dict[str, Any] = {"tasks": len(whole), "left_out": len(groups) - len(whole), **found}
        if record is not None:
            tasks, temperature = self.tasks.load(), self.sampling.temperature
            values |= {"policy": own.name} | followed(record, server, self.gold, tasks, temperature)
        return Finding(values=values, lines=_lines(values), pictures=_pictures(values))

    async def _answers(self, server: Server) -> list[Group]:
        groups = await answer_all(server, self.kind, self.tasks.load()[: self.first], self.n, self.sampling)
        return [await scored(group, self.gold, RewardContext()) for group in groups]


def curves(proxy_GN: Reals, gold_GN: Reals) -> dict[str, Any]:
    """Means with intervals of proxy and gold of the best of 1, 2, 4, ... N, the KL bounds, the peak and the verdict."""
    count = proxy_GN.shape[1]
    sizes = [n for n in (2**i for i in range(11)) if n < count] + [count]
    order_GN = np.argsort(proxy_GN, axis=1, kind="stable")
    sorted_proxy, sorted_gold = (np.take_along_axis(x, order_GN, 1) for x in (proxy_GN, gold_GN))
    weight_SN = np.array([weights(count, n) for n in sizes])
    proxy_GS, gold_GS = sorted_proxy @ weight_SN.T, sorted_gold @ weight_SN.T
    rows = []
    for s, n in enumerate(sizes):
        proxy, gold = row(proxy_GS[:, s]), row(gold_GS[:, s])
        rows.append({"n": n, "kl_at_most": log(n) - (n - 1) / n, "proxy": proxy, "gold": gold})
    peak = int(gold_GS[::2].mean(0).argmax())
    fall = row(gold_GS[1::2, -1] - gold_GS[1::2, peak]) if len(gold_GS) > 2 else None
    verdict = "too little"
    if len(gold_GS) >= FEWEST and fall is not None:
        verdict = "shown" if fall["high"] < 0 else "not shown"
    return {"best_of": rows, "peak": sizes[peak], "fall": fall, "verdict": verdict}


def weights(count: int, n: int) -> Reals:
    """[N] probability of each of N sorted values to be the largest of n drawn without replacement."""
    return np.array([comb(i, n - 1) / comb(count, n) for i in range(count)])


def _scores(model: Any, name: str, groups: Sequence[Group]) -> Reals:
    """[G, N] scores of the reward head in a model's folder."""
    from posttrain.components.diagnostics._likelihoods import last_states
    from posttrain.policies.language_model import head_file, read_value_head

    head = read_value_head(Path(model.origin.source) / head_file("reward"), model.body.width)
    if head is None:
        raise UserError(
            f"'{name}' has no reward head; give the folder of a reward model, as "
            "runs/NAME/checkpoints/STEP/models/reward"
        )
    texts = [(t.token_ids, len(t.token_ids) - 1) for g in groups for t in g]
    states: Sequence[FloatArray] = last_states(model, texts)
    weight_D, bias = head.weight[0].detach().cpu().numpy(), float(head.bias[0].detach())
    scores = np.array([float(own[-1] @ weight_D) + bias for own in states], np.float64)
    return np.asarray(scores.reshape(len(groups), -1))


def _pictures(values: dict[str, Any]) -> list[Picture]:
    """Gold and proxy of the best of n, and over the steps of a run."""
    parts = [("best_of", "kl_at_most", "best of n", "the largest KL that the best of n can have from the policy, nats")]
    parts += [("steps", "step", "steps of the run", "steps")] if "steps" in values else []
    return [
        Picture(
            title=f"{score}, {title}",
            caption=f"Mean {score} of the answers with its 95 % interval, over {axis}.",
            points=[(own[place], *(own[score][end] for end in ("mean", "low", "high"))) for own in values[rows]],
        )
        for rows, place, title, axis in parts
        for score in ("gold", "proxy")
    ]


def _lines(values: dict[str, Any]) -> list[str]:
    lost = f", {values['left_out']} more left out, whose scoring failed" if values["left_out"] else ""
    lines = [f"{values['tasks']} tasks{lost}; best of n by the reward model: KL at most, proxy, gold"]
    for own in values["best_of"]:
        proxy, gold = own["proxy"], own["gold"]
        lines.append(
            f"{own['n']:5d}  {own['kl_at_most']:.2f}  {proxy['mean']:.3f} [{proxy['low']:.3f}, {proxy['high']:.3f}]  "
            f"{gold['mean']:.3f} [{gold['low']:.3f}, {gold['high']:.3f}]"
        )
    fall = values["fall"]
    worded = "" if fall is None else f": {fall['mean']:+.3f} [{fall['low']:+.3f}, {fall['high']:+.3f}] after it"
    lines.append(f"gold is highest at {values['peak']}{worded}; over-optimisation is {values['verdict']}")
    return [*lines, *(_steps(values) if "steps" in values else ())]


def _steps(values: dict[str, Any]) -> list[str]:
    """The steps of a run."""
    lines = [f"steps of the run: KL from {values['policy']}, proxy, gold"]
    for own in values["steps"]:
        proxy, gold = own["proxy"], own["gold"]
        lines.append(
            f"{own['step']:5d}  {own['kl']['mean']:.2f}  {proxy['mean']:.3f} [{proxy['low']:.3f}, {proxy['high']:.3f}]"
            f"  {gold['mean']:.3f} [{gold['low']:.3f}, {gold['high']:.3f}]"
        )
    alarms = ", ".join(f"{alarm['step']} ({alarm['message']})" for alarm in values["alarms"])
    return [*lines, f"gold is highest at step {values['peak_step']}; alarms: {alarms or 'none'}"]
