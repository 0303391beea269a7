"""The score that a judge writes in JSON for one response, by a rubric and demonstrations in its prompt.

Source: arXiv:2506.05748, abstract: a frozen model with one line of rubric, JSON and six demonstrations, and an adapter,
gives the reward of PPO. The reward is (score - low) / (high - low), at the last token. The judge answers greedily, so
equal responses of a group are scored once. Its prompt and the rules of reading are `datasets/judge_prompts`.

A reply without a score is an error, or has the value `unreadable`, and is counted in both cases; once more than
`most_unreadable` of the rollouts of a stage of reinforcement have such a reply, it stops. ``reward/unreadable`` and
``reward/highest`` in the metrics are the shares of replies without a score and with the highest one: where all have it,
there is nothing to learn from.

With `constrained` a judge can write nothing but an object with a reason of at most that many bytes and a whole number
of the scale. For a local one ``reward/own_form`` is then the mean probability that it would have written the form
without the mask: a judge with a small one has no verdict of its own (`posttrain.engines._forms`). An endpoint is sent
the form as a JSON schema (``response_format``) and does not say what its mask removes, so that there is no such metric;
one that refuses schemas makes scores errors.

Differs: nothing of the rules of scores, failures and bounds is published; they are of this package.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure
from posttrain.datasets.judge_prompts import JudgePrompt
from posttrain.datasets.templates import shortened
from posttrain.engines import Sampling, Watch, Writer
from posttrain.engines._forms import Fixed, Form, Free, OneOf, Part
from posttrain.errors import AlarmStop, NoAnswer, UserError
from posttrain.grading.extraction import shown
from posttrain.types import Group, Message, Score, Task

ENOUGH = 100
"""Rollouts before their share can stop a stage."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class JsonScore(Reward):
    """Scores by a judge's number in JSON."""

    role: str = "judge"
    """The judge's role."""
    prompt: JudgePrompt = JudgePrompt()
    """Rubric, demonstrations, scale."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=256)
    """How the reply is sampled."""
    unreadable: Share | None = None
    """Value of a response without a score, as 0 in the paper; None makes it an error. It is counted in both cases."""
    most_unreadable: Share = 0.05
    """Share of rollouts without a score above which a stage of reinforcement stops, once it has 100."""
    longest: Annotated[int, Field(ge=1, le=10_000_000)] = 16384
    """Characters of a completion that are shown, its first ones. ``reward/cut`` is the share of those with more."""
    constrained: Annotated[int, Field(ge=0, le=2000)] | None = None
    """Most bytes of a reason, where the form is enforced; 0 has no reason. None samples freely."""
    correct_at: Share = 0.5
    """Smallest value that counts as correct, for the record only."""

    @property
    def roles(self) -> frozenset[str]:
        """The judge."""
        return frozenset({self.role})

    @property
    def judges(self) -> frozenset[str]:
        """The judge."""
        return self.roles

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Ask about every different response. Raises `AlarmStop` where too many replies have no score."""
        writer = context.sampler(self.role, self.kind)
        if self.constrained is not None and not (hasattr(writer, "watched") or hasattr(writer, "write_value")):
            raise UserError(
                f"constrained is set, and the engine of the role '{self.role}' takes no masks; name a model that is "
                "loaded here or an endpoint, or leave constrained out"
            )
        shorter = [shortened(trajectory.completion, self.longest) for trajectory in group]
        texts = [text for text, _ in shorter]
        asked = list(dict.fromkeys(texts))
        found = await asyncio.gather(*(self._score(group.trajectories[0].task, text, writer) for text in asked))
        by_text = dict(zip(asked, found, strict=True))
        scores = [replace(by_text[text], parts={**by_text[text].parts, "cut": counted(cut)}) for text, cut in shorter]
        if context.learning:
            self._count(context, [score for score in scores if "unreadable" in score.parts])
        return scores

    async def _score(self, task: Task, response: str, writer: Writer) -> Score:
        text = self.prompt.text(task, response)
        try:
            reply, own = await self._reply((Message(role="user", content=text),) if self.prompt.chat else text, writer)
        except NoAnswer as error:
            return failure(str(error))
        value, source = self.prompt.read(reply), f"the role '{self.role}' (prompt {self.prompt.digest}): "
        if value is None and self.unreadable is None:
            return failure(f"{source}no score in {shown(reply, 200)}", parts={"unreadable": _part(1.0)})
        parts = {"unreadable": _part(float(value is None)), "highest": _part(float(value == 1.0))}
        parts |= {} if own is None else {"own_form": _part(own)}
        given = self.unreadable or 0.0 if value is None else value
        return Score(
            value=given,
            status="ok" if value is not None and given >= self.correct_at else "wrong",
            explanation=source + ("no score in " if value is None else "") + shown(reply, 200),
            parts=parts,
        )

    async def _reply(self, prompt: str | tuple[Message, ...], writer: Any) -> tuple[str, float | None]:
        """The judge's reply, and the probability of its form without a mask, where there is one."""
        if self.constrained is None:
            [reply] = await writer.write(prompt, 1, self.sampling)
            return reply, None
        if not hasattr(writer, "watched"):
            [reply] = await writer.write_value(prompt, 1, self.sampling, self.schema)
            return reply, None
        form = Form.of(self._parts(self.constrained), writer)
        watch = Watch(matcher=form.matcher)
        [completion] = await writer.watched(writer.encode(prompt), 1, self.sampling, watch)
        return completion.text, form.own_share(completion.token_ids, completion.logp)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The form of a reply as a JSON schema."""
        low, high = self.prompt.scale
        properties: dict[str, Any] = (
            {"why": {"type": "string", "maxLength": self.constrained}} if self.constrained else {}
        )
        properties["score"] = {"type": "integer", "minimum": math.ceil(low), "maximum": math.floor(high)}
        return {
            "type": "object",
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
        }

    def _parts(self, reason: int) -> tuple[Part, ...]:
        """The form of a reply."""
        low, high = self.prompt.scale
        scores = OneOf(tuple(str(number) for number in range(math.ceil(low), math.floor(high) + 1)))
        why = (Fixed('{"why": "'), Free(reason), Fixed('", "score": ')) if reason else (Fixed('{"score": '),)
        return (*why, scores, Fixed("}"))

    @model_validator(mode="after")
    def check_form(self) -> Self:
        """Refuse a scale that has no whole numbers, or very many."""
        low, high = self.prompt.scale
        if self.constrained is not None and not 1 <= math.floor(high) - math.ceil(low) + 1 <= 1000:
            raise PydanticCustomError("scale", "a constrained score is one of 1 to 1000 whole numbers of the scale")
        return self

    def _count(self, context: RewardContext, scores: Sequence[Score]) -> None:
        failed = sum(score.parts["unreadable"].value for score in scores)
        asked = context.state["asked"] = context.state.get("asked", 0) + len(scores)
        bad = context.state["unreadable"] = context.state.get("unreadable", 0) + int(failed)
        if asked >= ENOUGH and bad / asked > self.most_unreadable:
            raise AlarmStop(
                f"{bad} of {asked} replies of the judge in the role '{self.role}' have no score, more than "
                f"most_unreadable={self.most_unreadable:g} allows. Train the judge on its form, give it more tokens "
                "(reward.sampling.max_tokens), or allow more"
            )


def _part(value: float) -> Score:
    return Score(value=value, status="ok" if value else "wrong")
