"""Search over tagged steps: order of children, bounds and values by hand, ends, equal paths, prompts, cut tokens."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.searched import Searched
from posttrain.components.search import Found
from posttrain.components.search.functions import Functions, Way, shares
from posttrain.datasets.grammars import Grammar
from posttrain.engines import Sampling
from posttrain.types import Completion, Message, Task
from tests.components.search.lines import TASK, Lines, Scorer, never

GRAMMAR = Grammar(first=("s",), after={"s": ("s", "c", "a"), "c": ("s", "a")}, depth=4)


class Steps(Lines):
    """Writes what the script has after each opening tag; `odds` are of tags, by the state before them."""

    context = 400

    def __init__(self, script: Mapping[str, str], odds: Mapping[str, float] | None = None, **more: Any) -> None:
        super().__init__({state: [text] for state, text in script.items()}, **more)
        self.odds = odds or {}

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> np.ndarray:
        return np.array([*text.encode(), 0], np.int64)

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        (written,) = await super().sample(token_ids, n, replace(sampling, max_tokens=1000))
        for mark in sampling.stop:
            place = written.text.find(mark)
            end = place + len(mark) + self.over
            if place >= 0 and end <= sampling.max_tokens:  # the mark stays in the ids and leaves the text
                return [_cut(written, end, written.text[:place], "stop")]
        if len(written.token_ids) > sampling.max_tokens:
            return [_cut(written, sampling.max_tokens, written.text[: sampling.max_tokens], "length")]
        return [written]

    over = 0

    async def logp(
        self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        """The whole log-probability of a tag is on its first letter."""
        text, out = self.decode(token_ids), np.zeros(len(token_ids) - 1, np.float32)
        state, _, tag = text.rpartition("<")
        out[text.rindex("<")] = math.log(self.odds.get(f"{state.removeprefix('P:')}<{tag}", 0.5))
        return out


def _cut(written: Completion, end: int, text: str, why: Any) -> Completion:
    cut = {"token_ids": written.token_ids[:end], "logp": written.logp[:end]}
    return replace(written, **cut, text=text, stop_reason=why)


def go(search: Functions, model: Lines, scorer: Any = None, values: Any = None, task: Task = TASK) -> Found:
    return asyncio.run(search.search(task, {"policy": model, "value": values or model}, scorer))


SCRIPT = {
    "P:<s>": "1</s>...",
    "P:<s>1</s><s>": "2</s>",
    "P:<s>1</s><a>": "one</a>",
    "P:<s>1</s><c>": "ok</c>",
    "P:<s>1</s><s>2</s><a>": "two</a>",
    "P:<s>1</s><s>2</s><s>": "3</s>",
    "P:<s>1</s><s>2</s><c>": "ok</c>",
    "P:<s>1</s><c>ok</c><a>": "one</a>",
    "P:<s>1</s><c>ok</c><s>": "4</s>",
    "P:<s>1</s><s>2</s><s>3</s><a>": "3</a>",
}
ODDS = {
    "<s>": 1.0,
    "<s>1</s><s>": 0.6,
    "<s>1</s><a>": 0.3,
    "<s>1</s><c>": 0.1,
    "<s>1</s><s>2</s><a>": 0.9,
    "<s>1</s><s>2</s><s>": 0.06,
    "<s>1</s><s>2</s><c>": 0.004,
    "<s>1</s><c>ok</c><a>": 0.9,
    "<s>1</s><c>ok</c><s>": 0.1,
    "<s>1</s><s>2</s><s>3</s><a>": 0.9,
}
LAST = ("<s>1</s><c>ok</c><s>4</s>", "<s>1</s><s>2</s><s>3</s>")
TWO, ONE, CHECKED = "<s>1</s><s>2</s><a>two</a>", "<s>1</s><a>one</a>", "<s>1</s><c>ok</c><a>one</a>"
REWARDS = {TWO: 0.0, ONE: 1.0, CHECKED: 1.0}


def texts(found: Found) -> list[str]:
    return [t.completion for t in found.trajectories]


@pytest.mark.parametrize(
    ("rollouts", "paths", "states"),
    [
        # by first children: the most probable kind each time
        (1, [TWO], {"": (0.0, 1), "<s>1</s>": (0.0, 1), "<s>1</s><s>2</s>": (0.0, 1)}),
        # below <s>1</s> the first that nobody visited: a, then c, which goes on by its first child
        (2, [TWO, ONE], {"": (0.5, 2), "<s>1</s>": (0.5, 2), "<s>1</s><s>2</s>": (0.0, 1)}),
        (
            3,
            [TWO, ONE, CHECKED],
            {"": (2 / 3, 3), "<s>1</s>": (2 / 3, 3), "<s>1</s><s>2</s>": (0.0, 1), "<s>1</s><c>ok</c>": (1.0, 1)},
        ),
        # s: 0 + .5 sqrt(ln 3), a and c: 1 + .5 sqrt(ln 3): the first of them, an answer that is there already
        (
            4,
            [TWO, ONE, CHECKED],
            {"": (3 / 4, 4), "<s>1</s>": (3 / 4, 4), "<s>1</s><s>2</s>": (0.0, 1), "<s>1</s><c>ok</c>": (1.0, 1)},
        ),
    ],
)
def test_paths_and_values_by_hand(rollouts: int, paths: list[str], states: dict[str, tuple[float, int]]) -> None:
    scorer = Scorer(REWARDS)
    found = go(Functions(rollouts=rollouts, grammar=GRAMMAR, exploration=0.5), Steps(SCRIPT, ODDS), scorer)
    assert texts(found) == paths == scorer.graded, "each path once, and scored once"
    seen = {state.text: (state.value, state.visits) for state in found.states}
    assert seen == {text: (pytest.approx(value), visits) for text, (value, visits) in states.items()}
    assert found.statistics["revisits"] == rollouts - len(paths) and found.statistics["answered"] == 1.0


def test_the_bound_by_hand() -> None:
    search = Functions(exploration=2.0)
    assert search.bound(0.25, 2, 5) == pytest.approx(0.25 + 2 * math.sqrt(math.log(5) / 2))
    assert search.bound(0.5, 1, 1) == 0.5


def test_with_much_exploration_the_least_visited_is_gone_to_and_unlikely_kinds_never_are() -> None:
    rewards = Scorer({**REWARDS, "<s>1</s><c>ok</c><s>4</s><a>5</a>": 0.0, "<s>1</s><s>2</s><s>3</s><a>3</a>": 1.0})
    script = {**SCRIPT, "P:<s>1</s><c>ok</c><s>4</s><a>": "5</a>"}
    odds = {**ODDS, "<s>1</s><c>ok</c><s>4</s><a>": 0.9}
    odds |= {f"{state}<{kind}>": 0.001 for state in LAST for kind in ("s", "c")}
    found = go(Functions(rollouts=40, grammar=GRAMMAR, least=0.01), Steps(script, odds), rewards)
    ways = {way.steps for t in found.trajectories if (way := t.fact(Way)) is not None}
    assert ("s", "c", "s", "a") in ways and ("s", "s", "s", "a") in ways
    assert not any(way[:3] == ("s", "s", "c") for way in ways), "probability .004 is below .01"


def test_where_no_kind_is_likely_all_are_children() -> None:
    odds = {"<s>": 0.001, "<s>1</s><s>": 0.001, "<s>1</s><a>": 0.003, "<s>1</s><c>": 0.002}
    for least in (0.01, 0.0):
        search = Functions(rollouts=3, grammar=GRAMMAR, least=least)
        found = go(search, Steps(SCRIPT, {**ODDS, **odds}), Scorer(REWARDS))
        assert texts(found) == [ONE, CHECKED, TWO], "in the order of their probabilities"


def test_tokens_and_their_log_probabilities() -> None:
    found = go(Functions(rollouts=2, grammar=GRAMMAR), Steps(SCRIPT, ODDS), Scorer(REWARDS))
    first, second = found.trajectories
    opening, body, tag, answer = second.segments[1:]
    assert [s.text for s in second.segments[1:]] == ["<s>", "1</s>", "<a>", "one</a>"]
    assert all(s.trained and s.version == 3 for s in (body, answer, tag, opening)), "the version of what was sampled"
    assert tag.logp is not None and tag.logp.tolist() == pytest.approx([0, math.log(0.3), 0])
    assert body.logp is not None and len(body.logp) == len("1</s>")
    assert first.segments[1:3] == (opening, body) and first.segments[2] is body, "what they share is one object"
    assert (opening.state_key, tag.state_key) == ("/", "/0") and second.stop_reason == "stop"
    # s 5 bytes and 5, two with its end 8, one with its end 8
    assert found.statistics["sampled_tokens"] == 5 + 5 + 8 + 8


def test_ends_without_an_answer_get_nothing() -> None:
    script = {"P:<s>": "1</s>", "P:<s>1</s><s>": "never closed"}
    # the end inside a step; the reward would count it
    cut = go(Functions(rollouts=1, grammar=GRAMMAR), Steps(script, ODDS), Scorer({"<s>1</s><s>never closed": 1.0}))
    assert cut.values == (0.0,) and cut.trajectories[0].stop_reason == "stop"
    long = {"P:" + "<s>1</s>" * i + "<s>": "1</s>" for i in range(9)}
    odds = {"<s>1</s>" * i + "<s>": 0.9 for i in range(9)}
    deep = go(Functions(rollouts=1, grammar=GRAMMAR), Steps(long, odds), Scorer({"<s>1</s>" * 4: 1.0}))
    assert deep.values == (0.0,) and deep.trajectories[0].stop_reason == "length"
    assert deep.statistics["depth"] == 4 and deep.statistics["answered"] == 0.0
    short = Functions(rollouts=1, grammar=GRAMMAR, sampling=Sampling(max_tokens=19))
    full = go(short, Steps(long, odds), Scorer({"<s>1</s><s>1</s>": 1.0}))
    assert len(full.trajectories[0].completion) == 16, "no room for another tag and a token"
    assert full.trajectories[0].stop_reason == "length"


def test_a_failed_score_is_no_zero_and_its_path_is_not_gone_again() -> None:
    odds = ODDS | {f"{state}<{kind}>": 0.001 for state in LAST for kind in ("s", "c")}
    search = Functions(rollouts=3, grammar=GRAMMAR, least=0.01)
    found = go(search, Steps(SCRIPT, odds), Scorer({ONE: 1.0, CHECKED: 0.5}))
    assert math.isnan(found.values[0]) and texts(found)[:3] == [TWO, "<s>1</s><s>2</s><s>3</s><a>3</a>", ONE]


def test_votes_need_nobody_else() -> None:
    found = go(Functions(rollouts=3, grammar=GRAMMAR, votes=True), Steps(SCRIPT, ODDS), never)
    assert found.values == (pytest.approx(1 / 3), pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert found.best.completion == ONE and all(t.score is None for t in found.trajectories)
    assert shares([None, "1", "1", "2"]) == [0.0, 0.5, 0.5, 0.25]


def test_a_value_model_scores_whole_paths() -> None:
    values = {TWO: 0.4, ONE: 0.1, CHECKED: 0.8}
    model = Steps({}, values=values)
    model.score = _without_end(model)  # type: ignore[method-assign]
    found = go(Functions(rollouts=3, grammar=GRAMMAR, value_role="value"), Steps(SCRIPT, ODDS), never, model)
    assert found.values == (0.4, 0.1, 0.8) and found.best.completion == CHECKED


def _without_end(model: Steps) -> Any:
    async def score(token_ids: np.ndarray, **_: Any) -> float:
        return model.values[model.decode(token_ids).removeprefix("P:")]

    return score


def test_a_token_that_holds_more_than_a_closing_tag() -> None:
    """The piece of the next opening tag that was written stays, and the rest of the tag goes on after it."""
    model = Steps({"P:<s>": "1</s><", "P:<s>1</s><a>": "one</a>"}, {"<s>": 1.0, "<s>1</s><a>": 0.9})
    model.over = 1
    found = go(Functions(rollouts=1, grammar=GRAMMAR), model, Scorer({ONE: 1.0}))
    assert [s.text for s in found.trajectories[0].segments[1:]] == ["<s>", "1</s><", "a>", "one</a>"]
    other = Steps({"P:<s>": "1</s>!"}, {"<s>": 1.0})
    other.over = 1
    assert go(Functions(rollouts=1, grammar=GRAMMAR), other, Scorer({"<s>1</s>!": 1.0})).values == (0.0,)


PROMPTS = {"s": "{problem} step after {path}?", "c": "{problem} check {path}?", "a": "{problem} result of {path}?"}


def test_with_prompts_each_step_is_asked_for() -> None:
    grammar = replace(GRAMMAR, prompts=PROMPTS, depth=2)
    script = {
        "P: step after ?": " 1 ",
        "P: step after <s>1</s>?": "2",
        "P: check <s>1</s>?": "ok",
        "P: result of <s>1</s>?": "1",
    }
    search = Functions(rollouts=3, grammar=grammar)
    rewards = {"<s>1</s><s>2</s>": 0.0, "<s>1</s><c>ok</c>": 0.0, "<s>1</s><a>1</a>": 1.0}
    found = go(search, Steps(script), Scorer(rewards))
    assert texts(found) == list(rewards) and found.best.completion == "<s>1</s><a>1</a>"
    assert not any(s.trained for t in found.trajectories for s in t.segments) and not search.trains
    assert search.needs == frozenset()
    with pytest.raises(ValidationError, match="imitate its paths first"):
        Searched(search=search)


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ValidationError, match="a step ends with its closing tag"):
        Functions(sampling=Sampling(stop=("x",)))
    with pytest.raises(ValidationError, match="from votes or from a value model"):
        Functions(votes=True, value_role="value")
