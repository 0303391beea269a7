"""What is gained when a small Q network orders the subtasks of each text for a model whose weights do not change.

Source: RLAP, arXiv:2505.11893, of which only the abstract could be read: a task with several subtasks, such as the
parts of a relation that are extracted one after another, is a decision process. Its state is the text and what was
found so far, an action is the next subtask, the model that carries it out is a part of the environment, and a small
network that estimates Q from the text of both orders the subtasks, greedily. The rest is ours: the targets are those of
double DQN (or returns), the reward is 1 for each right answer (or for all of them, at the end), and the answers of the
model are kept, as its decoding is greedy.

The last `tested` tasks are done in the learned order, in every fixed order, and in the best one of each text in
hindsight, which is a bound. Weights of the model do not change, by digest.

    posttrain diagnose subtask_order RUN tasks=records.jsonl
    # columns: prompt, subtasks, such as {"sender": "Ann", "date": "3 May"}

Differs: the network reads hashed words, not an encoder's states. The answers are kept by text, subtask and what was
found, also where the same subtasks were done with other answers.

Measured here, lines of three fields of which each can be read only once another one was, in one of three orders, by a
worker by rules that errs in 10 % of the cases (5 seeds, 200 new lines): all fields are right in 58 % of the lines [52,
64] after 100 episodes, 69 % [67, 71] after 200 and 71 % [67, 76] after 400, in 71 % [67, 74] with returns as targets.
The bound is 72 % [67, 76], the best fixed order has 27 % [24, 29], a random one 12 % [11, 13]. After 400 episodes 26 %
of the requests came from the cache (docs/experiments.md).
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._order_learning import OrderLearning
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import check_places, fill, places, question_of
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import NoAnswer, UserError
from posttrain.statistics.intervals import wilson
from posttrain.types import Message, Task

if TYPE_CHECKING:
    from posttrain.components.diagnostics._orders import Instance, Request
    from posttrain.policies import Policy

ROWS: Final = (288,)
MOST: Final = 6
"""Subtasks of a text, so that all orders can be tried."""
TEMPLATE: Final = "{text}\n{found}{subtask}:"


@frozen
class SubtaskOrder(Diagnostic):
    """Learns the order of subtasks, and measures it beside fixed orders."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """Texts with a field ``subtasks``, names with their reference answers."""
    episodes: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    """Texts that are learned from, drawn from all but the tested ones."""
    tested: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Tasks of the test, the last ones."""
    learning: OrderLearning = OrderLearning()
    """How Q is learned."""
    reward: Literal["steps", "final"] = "steps"
    """What is rewarded: each right answer, or all of them being right, at the end."""
    template: str = TEMPLATE
    """Prompt of a subtask. Placeholders: text, found (a line ``name: answer`` for each) and subtask."""
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 32
    """Longest answer; it ends at the line's end."""
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Decides weights and draws."""

    @field_validator("template")
    @classmethod
    def check_template(cls, template: str) -> str:
        """Refuse a template without text or subtask."""
        if not {"text", "subtask"} <= places(template):
            raise PydanticCustomError("place", "the template must show {{text}} and {{subtask}}")
        return check_places(template, ("text", "found", "subtask"))

    def examine(self, *subjects: Subject) -> Finding:
        """Learn, and do the last tasks in all orders."""
        from posttrain.components.diagnostics import _orders

        [subject] = subjects
        instances = [_instance(task) for task in self.tasks.load()]
        if len(instances) <= self.tested:
            raise UserError(
                f"{self.tested} tested tasks leave none of {len(instances)} to learn from; give more, or lower tested"
            )
        policy = subject.load()
        before, server = _digest(policy), subject.serve(policy)
        worker = _orders.Cached(lambda requests: wait_for(self._done(server, requests)))
        actor = _orders.Actor(self.learning, self.seed)
        final = self.reward == "final"
        _orders.learn(actor, instances[: -self.tested], worker, self.episodes, final=final)
        learned_from = {"requests": worker.asked, "calls": worker.calls}
        tests = instances[-self.tested :]
        values = {
            **compared(actor, tests, worker),
            "training": {**learned_from, "from_cache": 1 - learned_from["calls"] / learned_from["requests"]},
            "weights_unchanged": _digest(policy) == before,
        }
        return Finding(values=values, lines=_lines(values, len(tests)))

    async def _done(self, server: Server, requests: Sequence["Request"]) -> list[str]:
        """The answers of the model; empty where a call fails."""

        async def one(request: "Request") -> str:
            found = "".join(f"{name}: {answer}\n" for name, answer in request.found)
            values = {"text": request.instance.text, "found": found, "subtask": request.subtask}
            prompt: str | tuple[Message, ...] = fill(self.template, values)
            sampling = Sampling(temperature=0.0, max_tokens=self.max_tokens, stop=("\n",))
            try:
                [text] = await server.bind("subtask").write(prompt, 1, sampling)
            except NoAnswer:
                return ""
            return text.strip()

        return list(await asyncio.gather(*map(one, requests)))


def compared(actor: Any, tests: Sequence["Instance"], worker: Any) -> dict[str, Any]:
    """All right and right answers, in the learned order, in fixed ones and in the best one of each text."""
    from posttrain.components.diagnostics import _orders

    names = list(dict.fromkeys(name for instance in tests for name in instance.gold))
    if len(names) > MOST:
        raise UserError(f"the tested tasks have {len(names)} subtasks, and at most {MOST} have all orders tried")
    learned = [episode.right for episode in _orders.play(actor, tests, worker, 0.0)]
    fixed = {order: _orders.in_order(tests, order, worker) for order in _orders.orders(names)}
    whole = {order: np.asarray(right.all(1)) for order, right in fixed.items()}
    best = max(whole, key=lambda order: float(whole[order].mean()))
    count = len(tests)
    hindsight = sum(any(own[i] for own in whole.values()) for i in range(count))
    return {
        "learned": sum(map(all, learned)) / count,
        "learned_answers": sum(map(sum, learned)) / sum(map(len, learned)),
        "best_fixed": float(whole[best].mean()),
        "best_fixed_order": list(best),
        "random": float(sum(own.mean() for own in whole.values())) / len(whole),
        "best_of_each": hindsight / count,
    }


def _instance(task: Task) -> "Instance":
    from posttrain.components.diagnostics._orders import Instance

    given = task.fields.get("subtasks")
    if not isinstance(given, Mapping) or not given or not all(isinstance(v, str) for v in given.values()):
        raise UserError(
            f"task '{task.key}' has no field 'subtasks' with names and reference answers as texts, such as "
            '{"sender": "Ann", "date": "3 May"}; add the column'
        )
    return Instance(text=question_of(task), gold=dict(given))


def _digest(policy: "Policy") -> str:
    """Of all weights."""
    digest = hashlib.sha256()
    for name, weight in sorted(policy.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().view(-1).numpy().tobytes())
    return digest.hexdigest()


def _lines(values: Mapping[str, Any], count: int) -> list[str]:
    """The shares of texts with all answers right."""
    interval = wilson(round(values["learned"] * count), count)
    return [
        f"all answers right, {count} tasks",
        f"  learned order        {values['learned']:.1%} [{interval.low:.1%}, {interval.high:.1%}]",
        f"  best fixed order     {values['best_fixed']:.1%} ({', '.join(values['best_fixed_order'])})",
        f"  random order         {values['random']:.1%}",
        f"  best of each text    {values['best_of_each']:.1%} (in hindsight)",
        f"{values['training']['requests']:,} requests while learning, {values['training']['from_cache']:.0%} of them "
        "from the cache; " + ("weights unchanged" if values["weights_unchanged"] else "the weights changed"),
    ]
