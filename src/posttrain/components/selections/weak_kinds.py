"""Keeps the kinds of tasks that the policy is weak at, and a small share of the others against forgetting.

Source: RedOne 2.0, arXiv:2511.07070, section 3.3: the first stage of reinforcement shows which tasks stay weak; these
are imitated from given answers, with 5.6 % of rows of other tasks whose target is the best of 8 answers of the model
itself, by a judge. Such rows hold the model near itself.

A kind is a task's domain. Its score is the share of correct rollouts of its first `probed` tasks. One at the threshold
or above gives no row but those of the share.

Differs: the threshold is not in the paper, and which tasks are weak is read from benchmarks there. The share is of
other kinds of the same data here, of a general data set there. Rare kinds are not weighed up: a mixture of tasks
(`posttrain.components.tasks.mixture`) sets shares.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, sample_all
from posttrain.datasets.checked import checked_of, make
from posttrain.engines import Sampler, Sampling
from posttrain.errors import AlarmStop
from posttrain.types import Group, Task


@frozen
class WeakKinds(Selection):
    """Chooses kinds by the success of rollouts."""

    reward: Reward
    """Scores the rollouts; status ``ok`` is right, and the best of several has the highest score."""
    threshold: Annotated[float, Field(ge=0.0, le=1.0)] = 0.6
    """Share of correct rollouts below which a kind is weak."""
    general: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.06
    """Share of rows of the other kinds, among all rows that are kept."""
    targets: Literal["own", "given"] = "own"
    """What those rows imitate: the best of the model's own answers, or the answers of the data."""
    n: Annotated[int, Field(ge=1, le=256)] = 8
    """Answers of which the best is taken."""
    probed: PositiveInt = 32
    """Tasks of each kind that are sampled, once each, to score it."""
    max_tokens: PositiveInt = 64
    """Longest rollout."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and those of the reward."""
        return frozenset({"policy"}) | self.reward.roles

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """The score of each kind, and the best answers to tasks of the others, by the place of the task."""
        probed = {name: own[: self.probed] for name, own in _kinds(tasks).items()}
        places = [place for own in probed.values() for place in own]
        groups = await self._sampled([tasks[place] for place in places], samplers, 1)
        right: dict[str, list[bool]] = {name: [] for name in probed}
        for place, group in zip(places, groups, strict=True):
            right[tasks[place].domain] += [t.solved for t in group if t.score and t.score.status != "error"]
        scores = {name: sum(own) / len(own) if own else None for name, own in right.items()}
        answers: dict[str, Any] = {}
        if self.targets == "own":
            wanted = self._others(tasks, scores)
            groups = await self._sampled([tasks[i] for i in wanted], samplers, self.n)
            for place, group in zip(wanted, groups, strict=True):
                made = make(checked_of(fitting(group, samplers["policy"])), "best_of")
                if made is not None:
                    answers[str(place)] = {"text": made.demonstrations[0], "origin": list(made.origin)}
        return {"scores": scores, "answers": answers}

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks of weak kinds with a text to imitate, and the others' share. Raises `AlarmStop` without scores."""
        scores = measured["scores"]
        if all(score is None for score in scores.values()):
            raise AlarmStop(
                f"no rollout could be scored by '{self.reward.kind}', so that no kind is known to be weak; fix the "
                "reward and resume"
            )
        weak, others = self._weak(tasks, scores), self._others(tasks, scores)
        shown = {place: tasks[place] for place in weak}
        shown |= {place: task for place in others if (task := self._shown(tasks, place, measured)) is not None}
        low, high = (
            [f"{name} {score:.0%}" for name, score in scores.items() if score is not None and self._is_weak(score) == w]
            for w in (True, False)
        )
        added = len(shown) - len(weak)
        return Chosen(
            tasks=[shown[place] for place in sorted(shown)],
            summary=(
                f"weak kinds (below {self.threshold:.0%}): {', '.join(low) or 'none'}; others: "
                f"{', '.join(high) or 'none'}; {len(weak)} rows of weak kinds and {added} of others, with "
                f"{'answers of the model' if self.targets == 'own' else 'given answers'}"
            ),
        )

    async def _sampled(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler], n: int) -> list[Group]:
        sampling = Sampling(max_tokens=self.max_tokens)
        return await sample_all(tasks, samplers, self.reward, role="policy", n=n, sampling=sampling, kind=self.kind)

    def _is_weak(self, score: float | None) -> bool:
        """Whether a kind of this score is weak; a kind that could not be scored is not known to be."""
        return score is not None and score < self.threshold

    def _weak(self, tasks: Sequence[Task], scores: Mapping[str, float | None]) -> list[int]:
        """Places of the tasks of weak kinds that have a demonstration."""
        return [i for i, task in enumerate(tasks) if self._is_weak(scores[task.domain]) and task.demonstrations]

    def _others(self, tasks: Sequence[Task], scores: Mapping[str, float | None]) -> list[int]:
        """Places of as many tasks of the other kinds as make up their share, as many of each kind as of another."""
        weak = len(self._weak(tasks, scores))
        count = round(weak * self.general / (1.0 - self.general))
        rest = [own for name, own in _kinds(tasks).items() if not self._is_weak(scores[name])]
        longest = max(map(len, rest), default=0)
        turns = [own[turn] for turn in range(longest) for own in rest if turn < len(own)]
        given = [place for place in turns if self.targets == "own" or tasks[place].demonstrations]
        return sorted(given[:count])

    def _shown(self, tasks: Sequence[Task], place: int, measured: Any) -> Task | None:
        """A task of the others with its target; None where the model gave no answer with an end."""
        if self.targets == "given":
            return tasks[place]
        answer = measured["answers"].get(str(place))
        if answer is None or not math.isfinite(answer["origin"][0]["value"]):
            return None
        fields = {**tasks[place].fields, "origin": answer["origin"]}
        return replace(tasks[place], demonstrations=(answer["text"],), fields=fields)


def _kinds(tasks: Sequence[Task]) -> dict[str, list[int]]:
    """Places of the tasks of each kind."""
    found: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        found.setdefault(task.domain, []).append(place)
    return found
