"""Imitation: raise the likelihood of demonstrations, token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.environments import with_opening
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.runs.record import StepRecord
from posttrain.stages import Models, Stage
from posttrain.stages.loss import combine
from posttrain.stages.needs import compared_roles, of_the_forward_pass, with_columns
from posttrain.stages.order import shuffled
from posttrain.training.settings import Learning
from posttrain.types import Message, Segment, Task, Trajectory, Utterance

Shown = str | tuple[Utterance, ...]
"""What is imitated: a completion, or an episode in which policy and world take turns."""

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.runs.bench import StageBench
    from posttrain.runs.run import StageRun
    from posttrain.training.packing import Example


@frozen
class SFT(Stage):
    """Supervised fine-tuning on the demonstrations of the tasks, completions only."""

    objective: Objective
    reducer: Reducer
    batch: PositiveInt = 32
    """Demonstrations per optimizer step."""
    epochs: PositiveFloat = 1.0
    """Passes over the demonstrations; a part of one is allowed."""
    max_steps: PositiveInt | None = None
    """Stops earlier than the epochs would."""
    learner: Learning = Learning()
    """How the model is updated."""
    regularizers: Mapping[str, Penalty] = field(default_factory=dict)
    """By name, penalties that are added to the loss: distance from another model, entropy, ..."""
    role: str = "policy"
    """The model that imitates: the policy, or a teacher, a guide, ... that is made ready for later stages."""
    tasks: Tasks | None = None
    """Problems of this stage; None takes the recipe's."""

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        """Refuse what there is no reward and no critic for."""
        for name, penalty in self.regularizers.items():
            if not penalty.acts_in_loss or penalty.start():
                why = "acts in the reward" if not penalty.acts_in_loss else "is steered by rewarded attempts"
                raise PydanticCustomError("regularizers", f"'{name}' {why}, and an sft stage has none; leave it out")
        columns = self.needs - of_the_forward_pass(self.needs)
        unknown = sorted(need for need in columns if not need.endswith(("_logp", "_velocity")))
        if unknown:
            raise PydanticCustomError("needs", f"an sft stage does not give the signal '{unknown[0]}'")
        return self

    @property
    def needs(self) -> frozenset[str]:
        """Signals that the objective and the regularizers read."""
        return self.objective.needs.union(*(penalty.needs for penalty in self.regularizers.values()))

    @property
    def roles(self) -> frozenset[str]:
        """The role that imitates, and those that it is compared with."""
        return frozenset({self.role}) | compared_roles(self.needs)

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every demonstration must fit into the context of the model, which must be trained."""
        model = models.get(self.role)
        if model is not None:
            self._check_trained(model)
        for task, text in self.pairs(tasks):
            demonstration(model or models["policy"], task, text)  # a copy of a role that is yet to be made

    def run(self, models: Models, run: "StageRun") -> Models:
        """Train on the demonstrations in a seeded order, new in every epoch."""
        from posttrain.training.learner import Learner, Loss

        policy = models[self.role]
        self._check_trained(policy)
        pairs = self.pairs(run.tasks)
        steps = self.total_steps(run.tasks)
        learner = Learner(policy, self.learner, seed=run.seed, num_steps=steps)
        run.restore({self.role: learner})
        own = of_the_forward_pass(self.needs)
        loss = Loss(
            per_token=combine(self.objective, self.regularizers, None),
            reducer=self.reducer,
            needs=own,
            others={role: models[role] for role in compared_roles(own)},
        )
        for step in range(run.steps_done, steps):
            record = StepRecord()
            order = self.order(len(pairs), step, run.seed)
            chosen = [self.example(policy, *pairs[i], run.seed, step, place) for place, i in enumerate(order)]
            if self.needs - own:
                with run.phase("signals"):
                    chosen = with_columns(chosen, self.needs - own, models, role=self.role, learning=self.learner)
            with run.phase("learn"):
                learned = learner.step(chosen, loss, progress=step / steps)
            record.metrics |= learned.metrics
            record.metrics["trained_tokens"] = float(sum(e.num_trained for e in chosen))
            record.metrics["epoch"] = (step + 1) * self.batch / len(pairs)
            run.finish_step(step + 1, record, {}, {self.role: learner}, models)
        return models

    def _check_trained(self, model: "Policy") -> None:
        """Raise `UserError` for a model without a parameter to train."""
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise UserError(
                f"the sft stage trains the role '{self.role}', but models.{self.role}.trained is false; set it to true"
            )

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Optimizer steps that the epochs come to, at least one."""
        steps = max(1, round(len(self.pairs(tasks)) * self.epochs / self.batch))
        return min(steps, self.max_steps) if self.max_steps else steps

    def pairs(self, tasks: Sequence[Task]) -> list[tuple[Task, Shown]]:
        """Every task with each of its demonstrations and episodes."""
        pairs: list[tuple[Task, Shown]] = []
        for task in tasks:
            pairs += [(task, text) for text in task.demonstrations]
            pairs += [(task, episode) for episode in task.episodes]
        if not pairs:
            raise UserError(
                f"none of the {len(tasks)} tasks has a demonstration to imitate; give a column named completion, "
                "response, demonstration or solution, messages that end with the assistant, or leave the sft stage out"
            )
        return pairs

    def preview(self, models: Models, run: "StageBench") -> list[str]:
        """The size of the work and the first demonstration."""
        pairs = self.pairs(run.tasks)
        examples = [
            self.example(models.get(self.role, models["policy"]), task, text) for task, text in pairs[: self.batch]
        ]
        tokens = sum(e.num_trained for e in examples) / len(examples)
        task, text = pairs[0]
        return [
            f"{len(pairs)} demonstrations, {self.total_steps(run.tasks)} steps of {self.batch}",
            f"{tokens:.1f} trained tokens per demonstration (mean of the first {len(examples)})",
            f"first prompt: {task.prompt!r}",
            f"first demonstration: {text if isinstance(text, str) else ''.join(part.text for part in text)!r}",
        ]

    def example(self, policy: "Policy", task: Task, text: Shown, *key: int) -> "Example":
        """The prompt, then the demonstration and the end token, which are trained. What a model draws for it, a flow
        for example, is a function of the key.
        """
        from posttrain.training.packing import example_of

        trajectory = demonstration(policy, task, text, *key)
        return example_of(trajectory, {"advantage": np.ones(trajectory.num_trained, np.float32)})

    def order(self, count: int, step: int, seed: int) -> list[int]:
        """Indices of a step's demonstrations: consecutive places in an endless row of seeded shuffles."""
        return shuffled(count, self.batch, step, seed)


def demonstration(policy: "Policy", task: Task, shown: Shown, *key: int) -> Trajectory:
    """A demonstration as a trajectory. Raises `UserError` when it does not fit into the model's context."""
    own = policy.demonstration(task, shown, *key) if isinstance(shown, str) else None
    if own is not None:
        return own
    said = (Utterance(actor="policy", text=shown),) if isinstance(shown, str) else shown
    opening = said[0].text if said[0].actor == "environment" else ""
    prompt = with_opening(task.prompt, opening)
    asked = policy.prompt(replace(task, prompt=prompt))
    parts = episode_segments(policy, prompt, said[1:] if opening else said)
    length = sum(map(len, parts))
    if len(asked) + length > policy.context:
        raise UserError(
            f"task {task.key}: prompt ({len(asked)} tokens) and demonstration ({length}) together pass the "
            f"model's context of {policy.context} tokens; shorten or leave out the row, or raise "
            "models.policy.context if the model allows it"
        )
    if not len(asked):  # Nothing precedes the first token of a bare text, so it cannot be learned.
        first = parts[0].token_ids
        asked, parts[0] = replace(asked, token_ids=first[:1]), replace(parts[0], token_ids=first[1:])
    return Trajectory(task=task, segments=(asked, *parts), stop_reason="stop")


def episode_segments(policy: "Policy", prompt: str | tuple[Message, ...], said: Sequence[Utterance]) -> list[Segment]:
    """What came after the prompt: the policy's turns are imitated, what the world said is not."""
    tokenizer = policy.tokenizer
    segments: list[Segment] = []
    for utterance in said:
        turn = sum(s.trained for s in segments)
        if utterance.actor == "policy":
            if utterance.ended:
                ids = tokenizer.encode_completion(prompt, utterance.text)
            else:
                ids = tokenizer.encode_open(utterance.text)
            segments.append(Segment(actor="demonstration", token_ids=ids, trained=True, turn=turn, text=utterance.text))
        else:
            before = segments[-1].token_ids if segments else np.zeros(0, np.int64)
            ids = tokenizer.encode_reply(prompt, before, Message(role="user", content=utterance.text))
            segments.append(Segment(actor="environment", token_ids=ids, turn=turn, text=utterance.text))
    return segments
