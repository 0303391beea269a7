"""The rollouts of a step: tasks are chosen, sampled, scored and filtered, again until enough groups pass."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from posttrain.components.curricula import Pick
from posttrain.components.filters import Dropped, Filter
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.stages import Models, StageContext
from posttrain.stages.fit import Step
from posttrain.stages.rl.ahead import Collected
from posttrain.stages.rl.begun import finished, gone_on
from posttrain.stages.rl.choosing import Choosing, collect_picks
from posttrain.stages.rl.collect import filter_groups, split_failed, stop_if_grading_fails
from posttrain.stages.rl.refill import Refill
from posttrain.stages.rl.spans import with_span_rewards, with_spans
from posttrain.stages.rl.waiting import pack_groups, unpack_groups
from posttrain.types import Group

_FIRST = Step(index=0, total=1)


@dataclass(frozen=True, kw_only=True)
class Collecting:
    """The parts of a stage that have to do with it, in a run."""

    models: Models
    context: StageContext
    memory: dict[str, Any]
    """Of the stage; changed in place."""
    choosing: Choosing
    rollout: Callable[[Step], Rollout]
    """The rollout with the settings of a step."""
    reward: Reward
    filters: Mapping[str, Filter]
    refill: Refill | None
    prompts: int
    steps: int
    """Of the stage."""
    tags: AbstractSet[str]
    """Tags whose token ranges something reads."""
    max_grader_errors: float
    sampling: list[int] = field(default_factory=list)
    """Steps that are being sampled."""
    shared: set[int] = field(default_factory=set)
    """Those that were so at the same time as another one."""

    def begin(self, number: int) -> Callable[[], Collected]:
        """Choose the tasks of a step and begin to sample them; returns what waits for the end.

        Where rollouts decide what else is sampled, all is sampled first: the curriculum would be asked after it has
        observed more, or before, as the clock has it.
        """
        step = Step(index=number, total=self.steps)
        if not self.context.ahead or self.refill is not None:
            found = self._collect(step)
            return lambda: found
        picks = self.choose(step, max(self.prompts - len(self.memory.get("begun", ())), 0), 0)

        def sample() -> tuple[list[Group], int]:
            self.sampling.append(number)
            before = self.context.sampled_tokens(self.models)
            try:
                groups = self._sampled(step, picks, 0)
            finally:
                self.shared.update(self.sampling if len(self.sampling) > 1 else ())
                self.sampling.remove(number)
            return groups, self.context.sampled_tokens(self.models) - before

        wait = self.context.beside(self.models, sample)

        def collected() -> Collected:
            first = wait()
            if number in self.shared and not self.overlaps():
                raise UserError(
                    "a reward or a rollout of this recipe keeps something from step to step, which several steps that "
                    "are sampled at the same time would change in the order of a clock; set schedule.overlapped=false"
                )
            return self._collect(step, picks, first)

        return collected

    def overlaps(self) -> bool:
        """Whether a step may be sampled beside the one before: nothing of that decides about it."""
        kept = self.memory.get("begun") or self.memory.get("reward")
        return self.context.overlaps and self.refill is None and not self.rollout(_FIRST).goes_on and not kept

    def _collect(
        self, step: Step, picks: list[Pick] | None = None, first: tuple[list[Group], int] | None = None
    ) -> Collected:
        """Sample until enough groups pass the filters; `picks` are the tasks of the first round, if they are chosen,
        and `first` its rollouts with the number of their tokens, if they are there.
        """
        memory, metrics = self.memory, step.record.metrics
        groups: list[Group] = []
        states, kept, dropped = memory["filters"], list[Group](), list[Dropped]()
        waiting = unpack_groups(memory.pop("surplus", ()), self.context.tasks, age=1)
        replay = self.refill.replay if self.refill is not None else None
        replayed: list[Group] = []
        if replay is not None:
            window, seed = memory.get("replay", ()), self.context.seed
            replayed = replay.draw(window, self.context.tasks, self.prompts, seed=seed, step=step.index)
        tasks = number = sampled = 0
        full = self.refill is not None and self.refill.is_full(waiting, self.prompts)
        while not full:
            before = self.context.sampled_tokens(self.models)
            count = self.prompts - (0 if number else len(replayed) + len(memory.get("begun", ())))
            chosen = picks if picks is not None else self.choose(step, max(count, 0), number)
            picks = None
            if first is not None:
                groups, sampled, first = [*first[0]], first[1], None
            else:
                groups += self._sampled(step, chosen, tasks)
                sampled += self.context.sampled_tokens(self.models) - before
            tasks += len(chosen)
            self.context.groups = groups
            stop_if_grading_fails(groups, self.max_grader_errors)
            states, kept, dropped = filter_groups(self.filters, memory["filters"], [*groups, *replayed])
            if self.refill is None or number == self.refill.rounds:
                break
            full = self.refill.is_full([*waiting, *kept], self.prompts)
            number += not full
        kept = [*waiting, *kept]
        if self.refill is not None:
            kept, over = self.refill.cut(kept, dropped, self.prompts)
            metrics |= {"refills": float(number), "groups_over": float(len(over))}
            dropped += over
            if self.refill.when_spent == "copies":
                copies = self.refill.copied(kept, self.prompts, (self.context.seed, step.index))
                metrics["groups_copied"] = float(len(copies))
                kept = [*kept, *copies]
            if self.refill.surplus == "carry":
                memory["surplus"] = pack_groups([item.group for item in over if self.refill.carries(item.group)])
                metrics["groups_carried"] = float(len(waiting))
        if replay is not None:
            memory["replay"] = replay.keep(memory.get("replay", ()), split_failed(groups)[0], step.index)
            metrics["groups_replayed"] = float(len(replayed))
        memory["filters"] = states
        return Collected(groups=groups, kept=kept, dropped=dropped, metrics=metrics, sampled=sampled)

    def choose(self, step: Step, count: int, number: int) -> list[Pick]:
        """The tasks of a step, or of a further round of it."""
        return self.choosing.choose(self.models, self.context, step, self.memory, count, number)

    def _sampled(self, step: Step, chosen: list[Pick], first: int) -> list[Group]:
        """Scored rollouts of the chosen tasks, the first of which has the number `first` in its step."""
        context = self.context
        scoring = RewardContext(
            progress=step.progress,
            step=step.index,
            place=first,
            seed=context.seed,
            learning=True,
            state=self.memory["reward"],
        )
        samplers = [context.samplers(self.models, step.index, first + place) for place in range(len(chosen))]
        rollout = self.rollout(step)
        sampled = gone_on(self.memory, rollout, self.reward, self.models, context, scoring)
        sampled += wait_for(collect_picks(chosen, rollout, self.reward, samplers, scoring))
        sampled = finished(self.memory, sampled)
        return with_span_rewards(with_spans(sampled, self.tags, self.models), self.models)
