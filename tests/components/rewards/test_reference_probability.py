"""RLPR's reward: which tokens count, with what, and against what."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.calibrated import Calibrated
from posttrain.components.rewards.reference_probability import ReferenceProbability
from posttrain.engines import Sampler
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.types import Segment, Task, Trajectory
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import score_all

TASK = Task(key="sum", prompt="6*7=", answer="42")
AFTER = {"4": 0.5, "2": 0.25}
BEFORE = {"4": 0.125, "2": 0.125}


class Bytes(ScriptedSampler):
    """A byte is a token; a character of the table has that probability, any other one 1/1000."""

    def __init__(self, table: dict[str, float], context: int = 4096) -> None:
        super().__init__("bytes")
        self.table, self.context, self.asked = table, context, list[str]()

    def decode(self, token_ids: np.ndarray) -> str:
        return bytes(int(i) for i in token_ids if i > 1).decode("utf-8", "replace")

    async def logp(
        self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        self.asked.append(self.decode(token_ids))
        return np.log([self.table.get(self.decode(token_ids[i : i + 1]), 1e-3) for i in range(1, len(token_ids))])


def written(text: str, task: Task = TASK, prompt: str | None = None) -> Trajectory:
    asked = str(task.prompt) if prompt is None else prompt
    ids = np.array([*text.encode(), 0])
    segments = (
        Segment(actor="prompt", token_ids=np.array([1, *asked.encode()]), text=asked),
        Segment(actor="policy", token_ids=ids, trained=True, logp=np.full(len(ids), -1.0, np.float32), text=text),
    )
    return Trajectory(task=task, segments=segments, stop_reason="stop")


def context(after: Sampler | None = None, before: Sampler | None = None) -> RewardContext:
    return RewardContext(samplers={"policy": after or Bytes(AFTER), "reference": before or Bytes(BEFORE)})


def value(reward: ReferenceProbability, text: str, given: RewardContext | None = None) -> float:
    (score,) = score_all(reward, written(text), context=given or context())
    assert score.status != "error"
    return score.value


FORM = "<think>6+6+...</think><answer>41</answer>"


@pytest.mark.parametrize(
    ("aggregate", "after", "before"),
    [("mean", 0.375, 0.125), ("product", 0.125, 1 / 64), ("geometric", 0.125**0.5, 0.125)],
)
def test_by_hand(aggregate: str, after: float, before: float) -> None:
    """Probabilities 1/2 and 1/4 after the thoughts, 1/8 and 1/8 before them; the answer that was given is not read."""
    reward = ReferenceProbability(aggregate=aggregate)  # type: ignore[arg-type]
    assert value(reward, FORM) == pytest.approx(after - before)
    assert value(replace(reward, baseline=None), FORM) == pytest.approx(after)


def test_what_the_models_read() -> None:
    after, before = Bytes(AFTER), Bytes(BEFORE)
    (score,) = score_all(ReferenceProbability(), written(FORM), context=context(after, before))
    assert after.asked == ["6*7=<think>6+6+...</think><answer>42"]
    assert before.asked == ["6*7= 42"]
    assert score.answer == "41"
    assert score.status == "wrong", "0.25 is below one half"


def test_white_space_and_the_end_are_not_counted() -> None:
    task = Task(key="t", prompt="?", answer="4 2")
    (score,) = score_all(ReferenceProbability(baseline=None), written(FORM, task), context=context())
    assert score.value == pytest.approx(0.375), "the space has 1/1000, and so has the end"


def test_thoughts_that_do_not_help_get_nothing() -> None:
    assert value(ReferenceProbability(), FORM, context(Bytes(BEFORE), Bytes(AFTER))) == 0.0
    assert value(ReferenceProbability(), FORM, context(Bytes(AFTER), Bytes(AFTER))) == 0.0
    certain = context(Bytes({"4": 1.0, "2": 1.0}), Bytes({}))
    assert 0.99 < value(ReferenceProbability(), FORM, certain) <= 1.0


@pytest.mark.parametrize(
    "text",
    ["42", "<answer>42</answer>", "<think>a</think><answer>42", "<think>a<answer>42</answer></think>",
     "<think>a</think><answer>42</answer><answer>42</answer>", "<answer>42</answer><think>a</think>", ""],
)  # fmt: skip
def test_another_form_gets_nothing_and_no_model_is_asked(text: str) -> None:
    after = Bytes(AFTER)
    assert value(ReferenceProbability(), text, context(after)) == 0.0
    assert value(ReferenceProbability(malformed=-1.0), text, context(after)) == -1.0
    assert not after.asked


def test_a_prompt_may_open_the_thoughts() -> None:
    after = Bytes(AFTER)
    attempted = written("6+6</think> <answer>\n41</answer>", prompt="6*7=<think>")
    (score,) = score_all(ReferenceProbability(baseline=None), attempted, context=context(after))
    assert score.value == pytest.approx(0.375)
    assert after.asked == ["6*7=<think>6+6</think> <answer>42"]
    assert score.answer == "41"


class Pairs(Bytes):
    """Text is encoded two characters a token, from the front; a token of one character is possible too."""

    def encode_completion(self, prompt: object, text: str) -> np.ndarray:
        return np.array([*(256 + int.from_bytes(text[i : i + 2].encode(), "big") for i in range(0, len(text), 2)), 0])

    def decode(self, token_ids: np.ndarray) -> str:
        parts = (int(i) - 256 if i > 255 else int(i) for i in token_ids if i > 1)
        return "".join(p.to_bytes(2 if p > 255 else 1, "big").decode() for p in parts)


def test_sampled_ids_are_kept_and_a_token_across_the_tag_is_made_again() -> None:
    """The thoughts were sampled byte by byte, the last of the tag together with the first digit."""
    after = Pairs({"4": 0.5, "42": 0.25, ">4": 0.75, "2": 0.125})
    head = [*b"<think>6</think><answer"]
    attempted = written("<think>6</think><answer>41</answer>")
    joined = np.array([*head, *after.encode_completion("", ">41</answer>")])
    prompt, answer = attempted.segments
    attempted = replace(attempted, segments=(prompt, replace(answer, token_ids=joined, logp=None)))
    seen: list[np.ndarray] = []
    plain = after.logp

    async def spying(
        token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        seen.append(token_ids)
        return await plain(token_ids)

    after.logp = spying  # type: ignore[method-assign]
    (score,) = score_all(ReferenceProbability(baseline=None), attempted, context=context(after))
    assert seen[0][len(prompt) :][: len(head)].tolist() == head
    assert after.decode(seen[0]).endswith("<answer>42")
    assert score.value == pytest.approx((0.75 + 0.125) / 2), "the tokens >4 and 2"


def test_what_cannot_be_scored_is_an_error() -> None:
    bare = written(FORM, Task(key="bare", prompt="6*7="))
    (score,) = score_all(ReferenceProbability(), bare, context=context())
    assert score.status == "error" and "task 'bare' has no answer" in score.explanation
    (score,) = score_all(ReferenceProbability(), written(FORM), context=context(Bytes(AFTER, context=20)))
    assert score.status == "error" and "left in the context" in score.explanation
    with pytest.raises(UserError, match="uses the role 'first', but no model has it here"):
        score_all(ReferenceProbability(baseline="first"), written(FORM), context=context())


def test_roles_and_those_of_a_wrapped_reward() -> None:
    assert ReferenceProbability().roles == {"policy", "reference"}
    assert ReferenceProbability(baseline=None).roles == {"policy"}
    assert Calibrated(correct=ReferenceProbability(baseline="first")).roles == {"policy", "first"}


def test_with_a_real_model_it_is_the_mean_of_the_probabilities_of_the_learner(tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=128)
    policy = load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))
    sampler = Native().serve(policy, 0).bind()
    thoughts = "<think>6+6</think><answer>"
    ids = np.concatenate([sampler.encode("6*7="), sampler.encode_completion("", f"{thoughts}41</answer>")])
    prompt = Segment(actor="prompt", token_ids=sampler.encode("6*7="), text="6*7=")
    text = f"{thoughts}41</answer>"
    answer = Segment(actor="policy", token_ids=ids[len(prompt) :], trained=True, text=text)
    attempted = Trajectory(task=TASK, segments=(prompt, answer), stop_reason="stop")
    (score,) = score_all(ReferenceProbability(baseline=None), attempted, context=context(sampler))
    swapped = np.concatenate([sampler.encode("6*7="), sampler.encode_completion("", f"{thoughts}42")])
    logp = asyncio.run(sampler.logp(swapped))
    assert score.value == pytest.approx(float(np.exp(logp[-3:-1]).mean()), rel=1e-5)
    assert not math.isclose(score.value, float(np.exp(logp[-2:]).mean()), rel_tol=1e-3)
