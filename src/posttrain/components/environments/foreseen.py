"""Another environment behind rules: an action that they forbid is refused, and the model proposes another one.

A refused action does not reach the environment. The model sees why, and the same state again, and may propose another
one, up to `refusals` times in a row; the proposal after that is carried out whatever the rules are. Rules only forbid:
what they do not forbid is carried out. They are written ``cut if wood:no, not saw``: an action, and words that the
state has or lacks, where the state is the key or else the text of the last observation. `posttrain diagnose foresight`
learns them.

Source: the look-ahead of WALL-E 2.0, arXiv:2504.15785, and its release (elated-sawyer/WALL-E at 3dad1ed,
s2_alfworld_trial.py): 5 refusals, at most 49 actions that are carried out; the same action without an effect again and
again ends the episode.

Differs: the release sends the text of the imagined action after the fifth refusal, which is a wasted step; here it is
the last proposal. What will work is predicted by the rules alone, as if their language model always expected success.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.statistics.action_rules import Foresight, parsed, words_of
from posttrain.types import Task


def check_rule(text: str) -> str:
    """Refuse a text that is no rule."""
    try:
        parsed(text)
    except ValueError as error:
        raise PydanticCustomError("rule", "{error}", {"error": str(error)}) from None
    return text


@frozen
class Foreseen(Environment):
    """Refuses what rules forbid, in front of another environment."""

    environment: Environment
    """Where actions are carried out."""
    rules: tuple[Annotated[str, AfterValidator(check_rule)], ...] = ()
    """Rules, of which the first that forbids an action is shown; none refuses nothing."""
    refusals: Annotated[int, Field(ge=0, le=100)] = 5
    """Most refusals in a row."""
    feedback: str = "It would fail: {rule}.\n{state}"
    """Observation after a refusal; ``{rule}`` stands for the rule, ``{state}`` for the last observation."""
    actions: Annotated[int, Field(ge=1, le=10_000)] = 49
    """Carried-out actions after which the episode ends."""
    repeats: Annotated[int, Field(ge=2, le=1000)] = 10
    """Carried-out actions in a row that are equal and leave the state as it is, after which the episode ends."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Those of the environment."""
        return self.environment.stop

    def check(self, tasks: Sequence[Task]) -> None:
        """Tasks must be those of the environment."""
        self.environment.check_alone(tasks)

    def instance(self, task: Task, draw: Draw) -> Instance:
        """An instance of the environment, with its rules in front."""
        return Guarded(self, self.environment.instance(task, draw))


class Guarded(Instance):
    """One rollout."""

    def __init__(self, settings: Foreseen, inner: Instance) -> None:
        self._settings, self._inner = settings, inner
        self._foresight = Foresight(rules=[parsed(text) for text in settings.rules], refusals=settings.refusals)
        self._seen, self._done = Observation(), list[tuple[str, str]]()

    async def start(self) -> None:
        """Get ready."""
        await self._inner.start()

    def begin(self) -> Observation:
        """The first observation of the environment."""
        self._seen = self._inner.begin()
        return self._seen

    async def step(self, action: str) -> Outcome:
        """Refuse an action, or carry it out."""
        state = self._state
        rule = self._foresight.refuses(words_of(state), action)
        if rule is not None:
            text = self._settings.feedback.replace("{rule}", rule.text).replace("{state}", self._seen.text)
            return Outcome(observation=Observation(text=text, state_key=state, legal=self._seen.legal))
        outcome = await self._inner.step(action)
        self._seen = outcome.observation
        self._done.append((action, state))
        last = self._done[-self._settings.repeats :]
        stuck = len(last) == self._settings.repeats and set(last) == {(action, self._state)}
        if outcome.done or not (stuck or len(self._done) >= self._settings.actions):
            return outcome
        return Outcome(observation=self._seen, reward=outcome.reward, done=True, truncated=True, valid=outcome.valid)

    async def solution(self) -> str | None:
        """The environment's own player."""
        return await self._inner.solution()

    async def finish(self) -> None:
        """Collect what the environment needs."""
        await self._inner.finish()

    def verdict(self) -> Verdict | None:
        """That of the environment."""
        return self._inner.verdict()

    def measures(self) -> Mapping[str, float]:
        """Those of the environment, refused and carried-out actions."""
        own = {"refused": float(self._foresight.total), "carried_out": float(len(self._done))}
        return {**self._inner.measures(), **own}

    async def close(self) -> None:
        """Release what the environment holds."""
        await self._inner.close()

    @property
    def _state(self) -> str:
        return self._seen.text if self._seen.state_key is None else self._seen.state_key
