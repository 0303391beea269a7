"""What is cut out of thoughts, what is sampled anew, and which rollouts are the group."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts import Difficulty
from posttrain.components.rollouts.compressed import Compressed, Compression, Eviction, split, uniformity
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion, Group, Score, Task
from tests.builders import ScriptedSampler

TASK = Task(key="sum", prompt="2+2=", answer="4")
STEPS = ("a a", "; b b", "; c c", "; d d")
TEXT = f"<think>{''.join(STEPS)}</think>4"


def pieces(text: str) -> list[bytes]:
    return [bytes([byte]) for byte in text.encode()]


class Writer(ScriptedSampler):
    """Writes `TEXT`, then ends of compressed thoughts; attends to each step of `STEPS` by `weights`."""

    def __init__(self, *key: int | str, weights: Sequence[float] = (4.0, 1.0, 2.0, 3.0)) -> None:
        super().__init__(*key)
        self.weights, self.prompts, self.read = weights, list[str](), list[str]()

    def bind(self, *key: int | str) -> "Writer":
        bound = Writer(*self.key, *key, weights=self.weights)
        bound.prompts, bound.read = self.prompts, self.read
        return bound

    def decode(self, token_ids: np.ndarray) -> str:
        return bytes(int(i) for i in token_ids if i > 1).decode()

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.prompts.append(self.decode(token_ids))
        text = "</think>5" if "compressed" in self.key else TEXT
        ids = np.array([*text.encode(), 0], np.int64)[: sampling.max_tokens]
        done = Completion(
            token_ids=ids, logp=np.full(len(ids), -1, np.float32), stop_reason="stop", version=3, text=self.decode(ids)
        )
        return [done] * n

    async def attention(
        self, token_ids: np.ndarray, *, share: float = 0.5, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        text = self.decode(token_ids)
        self.read.append(text)
        given = np.zeros(len(token_ids), np.float32)
        for step, weight in zip(STEPS, self.weights, strict=True):
            place = 1 + text.index(step)
            given[place : place + len(step)] = weight
        return given


def collected(rollout: Compressed, values: Sequence[float], writer: Writer | None = None) -> tuple[Group, Writer]:
    writer = writer or Writer("policy")
    left = iter([*values, *[1.0] * rollout.n])

    async def scorer(group: Group) -> Group:
        scores = [Score(value=v, status="ok" if v else "wrong") for v in (next(left) for _ in group)]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))

    [group] = asyncio.run(rollout.collect_scored(TASK, {"policy": writer, "reference": writer}, scorer))
    return group, writer


def test_uniformity_by_hand() -> None:
    assert uniformity([1, 1, 1, 1]) == pytest.approx(1.0)
    assert uniformity([1, 0, 0, 0]) == 0.0
    assert uniformity([0.5, 0.25, 0.25]) == pytest.approx(1.5 * math.log(2) / math.log(3))
    assert uniformity([0.6, 0.1, 0.3]) == pytest.approx(0.8173, abs=1e-4), "the example that cuts nothing"
    assert uniformity([3.0]) == uniformity([0, 0]) == uniformity([math.nan, 1]) == uniformity([]) == 1.0


def test_what_is_cut_by_hand() -> None:
    assert Eviction().cut([0.6, 0.1, 0.3], "easy") == frozenset()
    steps = [1.0, *[0.01] * 9]  # U = .4664 / ln 10: .6 of .797 is .48 of ten steps
    assert uniformity(steps) == pytest.approx(0.2026, abs=1e-4)
    assert Eviction().cut(steps, "easy") == {1, 2, 3, 4}, "the first of equal ones"
    assert Eviction().cut(steps, "medium") == {1, 2, 3} and Eviction().cut(steps, "hard") == {1}
    assert Eviction(most=0.25).cut(steps, "easy") == {1, 2}
    assert Eviction().cut([0.0, 0.0], "easy") == Eviction().cut([], "easy") == frozenset()


def test_steps_begin_at_cues() -> None:
    text = "x one Wait two Waiting; So be it"
    found = [text[a:b] for a, b in split(pieces(text), 2, len(text), ("Wait", "So", ";"))]
    assert found == ["one ", "Wait two Waiting", "; ", "So be it"]
    assert split(pieces("So it is"), 0, 8, ("So",)) == [(0, 8)]
    whole = [b"a;", b"b ; c", b" So", b"d"]  # two cues in a token, and a cue that begins within one
    assert split(whole, 0, 4, (";", "So")) == [(0, 1), (1, 2), (2, 4)]


def test_easy_tasks_lose_more_and_the_end_is_sampled_anew() -> None:
    rollout = Compressed(n=4, eviction=Eviction(uniform=1.0, rates=(1.0, 0.6, 0.2)), sampling=Sampling(max_tokens=200))
    writer = Writer("policy", weights=(20.0, 1.0, 0.5, 20.0))  # U = .596
    group, writer = collected(rollout, [1, 1, 1, 1], writer)
    assert writer.read[0].startswith("2+2=<think>a a; b b; c c; d d\nTime is up."), "the thoughts, without their end"
    assert writer.read[0].endswith("</think>"), "attention of the last token of the closing tag"
    assert writer.prompts[1] == "2+2=<think>a a; b b; d d", "one of four: 1 - .596, and the lowest one"
    made = [t for t in group if t.sample >= 4]
    assert made and len(group) == 4
    for t in made:
        kept, end = t.segments[1:]
        assert t.completion == "<think>a a; b b; d d</think>5" and t.num_trained == len(kept) + len(end)
        assert kept.logp is None and end.logp is not None and np.isnan(t.behavior_logp[: len(kept)]).all()
        cut = t.fact(Compression)
        assert cut is not None and (cut.steps, cut.evicted, cut.compressed_from) == (4, 1, t.sample - 4)
    assert all(t.fact(Difficulty) == Difficulty(pass_rate=1.0, difficulty="easy") for t in group)
    group, writer = collected(rollout, [1, 0, 0, 1], Writer("policy", weights=(20.0, 1.0, 0.5, 20.0)))
    assert writer.prompts[1:] == ["2+2=<think>a a; b b; c c; d d"] * 2, "a medium task: int(.24 * 4) steps"
    assert {t.sample for t in group} <= {0, 1, 2, 3, 4, 7}


def test_the_group_is_drawn_from_all() -> None:
    kept = [sorted(t.sample for t in collected(Compressed(n=4), [1] * 4, Writer("policy", i))[0]) for i in range(40)]
    lost = np.mean([[place not in row for place in range(4)] for row in kept])
    assert 0.35 < lost < 0.65, "half of eight"
    assert kept[0] == sorted(t.sample for t in collected(Compressed(n=4), [1] * 4, Writer("policy", 0))[0])


def test_without_a_correct_rollout_or_a_pair_of_tags_nothing_is_read() -> None:
    group, writer = collected(Compressed(n=3), [0, 0, 0])
    assert not writer.read and [t.sample for t in group] == [0, 1, 2]
    assert group.trajectories[0].fact(Difficulty) == Difficulty(pass_rate=0.0, difficulty="hard")
    group, writer = collected(Compressed(n=3, tag="thought"), [1, 1, 1])
    assert not writer.read and [t.sample for t in group] == [0, 1, 2]


def test_classes_and_models_without_attention() -> None:
    assert [Difficulty.of(k, 10, (0.8, 0.3)).difficulty for k in (8, 7, 3, 2)] == ["easy", "medium", "medium", "hard"]
    with pytest.raises(ValidationError, match="for a medium one"):
        Eviction(least=(0.4, 0.5))
    assert Compressed().roles == {"reference"} and Compressed(attention_role="policy").roles == frozenset()
    blind = Writer("policy")
    blind.attends = False
    with pytest.raises(UserError, match="attention_role: the attention of the role 'reference'"):
        collected(Compressed(n=2), [1, 1], blind)
    assert not blind.prompts, "before anything is sampled"
