"""Each known cheat has exactly the reward that docs/rewards.md states, and right texts have more, exceptions named."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks._reward_cheats import Cheat, cheats
from posttrain.components.diagnostics._small_mdp import MDP
from posttrain.components.diagnostics.invariance import changed_states
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.captions import Captions
from posttrain.components.rewards.constraints import CALIBRATED, Constraints
from posttrain.components.rewards.episodic_memory import EpisodicMemory
from posttrain.components.rewards.list_metric import ListMetric
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.teaching import Teaching
from posttrain.types import Score, Task
from tests.components.rewards.judging import attempt, judge, score_all
from tests.components.rewards.programs import tier_for
from tests.components.rewards.test_captions import played, steps
from tests.components.rewards.test_teaching import Student, explained
from tests.components.rollouts.test_pointwise import collected

ALL = list(cheats())
ROWS = {17, 39, 93, 96, 100, 124, 143, 154, 162, 170, 175, 188, 205, 216, 229, 244, 245, 252, 256, 286}
"""Rows whose cheats are texts; those of 73, 91, 204, 208, 287 and 313, lists, memories and episodes, are below."""
REWARDED = {
    "the same, by tests alone",
    "terminate, where that is right",
    "the 40 phrases, alone",
    "three right words, effective order",
    "'B or A', by a prefix",
    "always 'proved', where it is",
    "an echo of the prompt, no gates",
    "a changed meaning",
}
"""Cheats that are rewarded as right texts are: what a setting, or another reward, is for."""


def _rewarded(cheat: Cheat) -> None:
    if cheat.row == 252:
        pytest.importorskip("sacrebleu")
    cheat.reward.prepare()
    score = judge(cheat.reward, cheat.text, cheat.task)
    assert score.value == pytest.approx(cheat.pay, abs=5e-5) and score.status in ("ok", "wrong")


@pytest.mark.parametrize("cheat", [own for own in ALL if not own.runs], ids=lambda own: f"{own.row} {own.name}")
def test_texts(cheat: Cheat) -> None:
    _rewarded(cheat)


@pytest.mark.slow
@pytest.mark.parametrize("cheat", [own for own in ALL if own.runs], ids=lambda own: f"{own.row} {own.name}")
def test_programs(cheat: Cheat) -> None:
    tier_for()
    _rewarded(cheat)


def test_what_is_rewarded_as_a_right_text_is_named() -> None:
    assert {own.row for own in ALL} == ROWS
    honest = {own.name for own in ALL if own.row == 229}
    assert {own.name for own in ALL if own.accepted} - honest == REWARDED


QUERY = Task(key="q", prompt="q", fields={"prompts": ["q a:", "q b:", "q c:"], "relevant": [False, False, True]})
CONSTANT, HONEST = "so\n#### 5", "so\n#### 7"


def _listed(last: str, **settings: Any) -> list[float]:
    """Row 73: a 5 for two documents that are not relevant, and this text for the relevant one."""
    rows = [collected(CONSTANT, n=1, of=QUERY).trajectories[n] for n in range(2)]
    rows.append(collected(last, n=1, of=QUERY).trajectories[2])
    return [score.value for score in score_all(ListMetric(pairings=0, **settings), *rows)]


@pytest.mark.parametrize(
    ("name", "last", "pays", "optimistic"),
    [
        ("the right order", HONEST, [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]),
        ("a constant", CONSTANT, [1 / 3, 1 / 3, 1 / 3], [1.0, 1.0, 1.0]),
        ("11", "so\n#### 11", [1 / 3, 1 / 3, 0.0], [1 / 3, 1 / 3, 0.0]),
        ("5 or 9", "so\n#### 5 or 9", [1 / 3, 1 / 3, 0.0], [1 / 3, 1 / 3, 0.0]),
    ],
)
def test_lists(name: str, last: str, pays: list[float], optimistic: list[float]) -> None:
    """Row 73: what is no score ranks last and has nothing; constants are the right order for optimistic ties alone."""
    assert _listed(last) == pytest.approx(pays), name
    assert _listed(last, ties="optimistic") == pytest.approx(optimistic), name


def test_memories() -> None:
    """Row 91: a wrong answer after the thoughts of a stored success has all of `exploit`, and less than a right one."""
    reward, state, task = EpisodicMemory(of=Match()), dict[str, Any](), Task(key="sum", prompt="2 + 2?", answer="4")

    def scores(step: int, *texts: str) -> list[float]:
        context = RewardContext(step=step, learning=True, state=state)
        return [score.value for score in score_all(reward, *(attempt(text, task) for text in texts), context=context)]

    stored, other = "<think>two and two</think>\n", "<think>seven</think>\n"
    assert scores(0, f"{stored}4", f"{other}5") == pytest.approx([2.0, 0.0])
    assert scores(1, f"{stored}5", f"{other}5", f"{stored}4") == pytest.approx([1.0, 0.0, 2.0])
    assert scores(2, f"{stored}5") == pytest.approx([1.0]), "however often"


def test_designed_rewards() -> None:
    """Row 204: a bonus for coming nearer, and none for going back, is collected for ever; of a potential it is nothing.

    From 0 one may go to 1 or stay, from 1 back or to the end, for 1. Round trips have 1 + .81 + ... = 1 / .19.
    """
    move = np.zeros((3, 2, 3))
    move[0, 0, 1] = move[0, 1, 0] = move[1, 0, 0] = move[1, 1, 2] = move[2, :, 2] = 1.0
    own = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    ends = np.array([False, False, True])
    mdp = MDP(move_SAS=move, reward_SA=own, start_S=np.eye(3)[0], terminal_S=ends, gamma=0.9, horizon=9)
    nearer = own + np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    assert mdp.q_SA(nearer)[:2].tolist() == [
        pytest.approx([1 / 0.19, 0.9 / 0.19]),
        pytest.approx([0.9 / 0.19, 1.0]),
    ]
    assert changed_states(mdp, nearer) == 1, "back is better than the end"
    potential = own + np.array([[0.9 * 1.0, 0.0], [0.9 * 0.0 - 1.0, 0.0 - 1.0], [0.0, 0.0]])
    assert potential[0, 0] + 0.9 * potential[1, 0] == pytest.approx(0.0), "a round trip"
    assert changed_states(mdp, potential) == 0


def _farmed(times: int) -> Any:
    """An episode without the goal."""
    return replace(played(*["you take it"] * times), task=Task(key="q", prompt="go ", answer="the goal"))


@pytest.mark.parametrize(
    ("exponent", "pay"),
    [(0.0, 0.4 * 5), (1.0, 0.4 * 137 / 60), (3.0, 0.4 * (1 + 1 / 8 + 1 / 27 + 1 / 64 + 1 / 125))],
)
def test_captions(exponent: float, pay: float) -> None:
    """Row 208: a helpful caption five times in an episode that reaches nothing: five times the reward without decay."""
    farmed = _farmed(5)
    reward = Captions(of=Match(), helpful=("take",), delay=1, exponent=exponent)
    found, _ = steps(reward, farmed, farmed, farmed)
    assert [own[0].value for own in found] == pytest.approx([0.0, 0.0, pay])
    assert steps(reward, *[_farmed(1)] * 3)[0][2][0].value == pytest.approx(0.4)


def test_constraints() -> None:
    """Row 287: the best arm breaks a rule and has exactly 0, below every legal one, also where rewards are negative."""
    task = Task(key="arms", prompt="a, b or c?", answer="c", fields={"baseline": "b"})
    arms = {"a": -2.0, "b": -1.0, "c": 3.0}

    class Arms(Match):
        async def score(self, group: Any, context: RewardContext) -> list[Score]:
            return [Score(value=arms[t.completion], status="ok", answer=t.completion) for t in group]

    reward = Constraints(of=Arms(), constraints={"legal": Regex(pattern="^[ab]$")})
    found = {arm: judge(reward, arm, task) for arm in arms}
    assert found["c"].value == 0.0 and found["c"].status == "wrong"
    assert found["c"].parts[CALIBRATED].value == pytest.approx(1 / (1 + math.exp(-4)))
    assert found["b"].value == 0.5 and found["a"].value == pytest.approx(1 / (1 + math.e))
    products = {arm: arms[arm] * (arm != "c") for arm in arms}
    assert max(products, key=lambda arm: products[arm]) == "c", "a mask by products chooses the violator"
    assert max(found, key=lambda arm: found[arm].value) == "b"


class Reader(Student):
    """Expects the solution once the explanation has it: 12 has no nats then, and -2 a token in the question's place."""

    async def logp(self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: Any = None) -> np.ndarray:
        text = "".join(map(chr, token_ids))
        known = text.find("12")
        nats = [
            0.0 if 0 <= known < place and text[place] in "12" and place >= known + 2 else -2.0 if sign in "12" else -0.5
            for place, sign in enumerate(text)
        ]
        return np.array(nats[1:], np.float32)


@pytest.mark.parametrize(
    ("name", "text", "logp", "pay"),
    [
        # the student gives 12 all of its probability: 0, but did not expect it of the teacher: d = 2 and 2
        ("the solution copied", "12.", [0.0, 0.0], 0.0 - 3 * 2.0 - 0.03 * 2.0),
        # d is 0, the solution has -2 a token; the divergence of no words counts as 1
        ("an empty explanation", ".", [], -2.0 - 0.02 - 3.03),
        ("an empty explanation without its end", "", [], -2.0 - 0.02 - 3.03 - 1.0),
        ("words that the student expects", "ab.", [-0.5, -0.5], -2.0 - 0.02),
    ],
)
def test_explanations(name: str, text: str, logp: list[float], pay: float) -> None:
    """Row 313: both cheats have less than an empty sentence of words which the student expects."""
    reward = Teaching(closing=".", between=" ", temperature=1.0)
    context = RewardContext(samplers={"student": Reader()})
    [score] = score_all(reward, explained(text, logp), context=context)
    assert score.value == pytest.approx(pay), name
