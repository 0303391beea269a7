"""Whether a judge with a list of rules calls a text good: 1 or 0.

Source: path B of Igniting Creative Writing, arXiv:2508.21476. The rules are the field ``rules`` of the task, which the
selection `optimized_rules` gives it; `rules` is for tasks without one. With ``role: null`` the judge is code for
greetings: a text is bad if it has a feature with a rule (`posttrain.datasets.rule_agents`).

Differs: the release's function from verdict to reward is not published; 1 and 0 are ours. A reply without a verdict is
an error, as with every judge that rewards, or 0 with ``unreadable: zero``.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.reviews import Ask
from posttrain.datasets.rule_agents import CodeRuleAgents, ModelRuleAgents, RuleAgents
from posttrain.datasets.templates import question_of
from posttrain.engines import Sampling, Writer
from posttrain.errors import NoAnswer
from posttrain.grading.strict_json import object_in
from posttrain.types import Group, Message, Score, Trajectory


@frozen
class ByRules(Reward):
    """Rewards texts that a judge calls good."""

    role: str | None = None
    """The judge; None has a judge by code."""
    rules: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """Rules of tasks that have none."""
    own: bool = True
    """Whether the rules of a task come first."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=512)
    """How the judge replies."""
    whole: bool = True
    """Whether a text that was cut at the token limit is bad, without asking the judge."""
    unreadable: Literal["error", "zero"] = "error"
    """What a reply without a verdict is."""

    @property
    def roles(self) -> frozenset[str]:
        """The judge."""
        return frozenset() if self.role is None else frozenset({self.role})

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Judge every text."""
        agents: RuleAgents = CodeRuleAgents()
        if self.role is not None:
            agents = ModelRuleAgents(ask=self._asked(context.sampler(self.role, self.kind)))
        return await asyncio.gather(*(self._score(trajectory, agents) for trajectory in group))

    def _asked(self, writer: Writer) -> Ask:
        """What prompts the judge."""

        async def ask(request: str) -> Any:
            try:
                [reply] = await writer.write((Message(role="user", content=request),), 1, self.sampling)
            except NoAnswer:
                return None
            return object_in(reply)

        return ask

    async def _score(self, trajectory: Trajectory, agents: RuleAgents) -> Score:
        if self.whole and trajectory.stop_reason == "length":
            return Score(value=0.0, status="wrong", explanation="cut at the token limit")
        given = trajectory.task.fields.get("rules") if self.own else None
        rules = [str(rule) for rule in given] if isinstance(given, list | tuple) else list(self.rules)
        found = await agents.detect(question_of(trajectory.task), trajectory.completion, rules)
        if found is None and self.unreadable == "error":
            return failure("the judge's reply has no verdict")
        good, hint = found or (False, "the judge's reply has no verdict")
        return Score(value=float(good), status="ok" if good else "wrong", explanation=hint or "called good")
