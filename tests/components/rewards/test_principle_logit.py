import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.principle_logit import PrincipleLogit
from posttrain.types import Task
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all

TEMPLATE = "{raw_response}|{principle}?"


class Judge(ScriptedSampler):
    """Answers yes to what is short or long, by the principle: the letters less 3, on the last token of the word."""

    def __init__(self) -> None:
        super().__init__("judge")
        self.asked: list[str] = []

    async def logp(
        self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        text = self.decode(token_ids)
        self.asked.append(text)
        response, _, rest = text.partition("|")
        size = (len(response) - 3) * (1 if rest.startswith("long") else -1)
        last = size if text.endswith("yes") else 0.0
        return np.array([0.0] * (len(token_ids) - 2) + [last], np.float32)


def scored(reward: PrincipleLogit, principle: str | None, *texts: str) -> list[float]:
    task = Task(key="k", prompt="q", fields={} if principle is None else {"principle": principle})
    context = RewardContext(samplers={"judge": Judge()})
    return [s.value for s in score_all(reward, *(attempt(text, task) for text in texts), context=context)]


def test_another_principle_reverses_the_order() -> None:
    reward = PrincipleLogit(template=TEMPLATE, chat=False, words=("yes", "no"))
    assert scored(reward, "long", "aaaaa", "a") == [2.0, -2.0]
    assert scored(reward, "short", "aaaaa", "a") == [-2.0, 2.0]
    assert scored(PrincipleLogit(template=TEMPLATE, chat=False, words=("yes", "no"), clip=1.5), "long", "aaaaa") == [
        1.5
    ]


@pytest.mark.parametrize(("bound", "value"), [(True, -2.0), (False, 2.0)])
def test_the_principle_of_the_task_comes_first_where_it_is_bound(bound: bool, value: float) -> None:
    reward = PrincipleLogit(template=TEMPLATE, chat=False, words=("yes", "no"), principle="long", bound=bound)
    assert scored(reward, "short", "aaaaa") == [value]
    assert scored(reward, None, "aaaaa") == [2.0], "a task without one has that of the reward"


def test_a_template_shows_both() -> None:
    with pytest.raises(ValidationError, match="must show"):
        PrincipleLogit(template="{raw_response}")
