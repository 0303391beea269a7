"""Contamination: tests whether a model was trained by reinforcement on given tasks, from two answers to each.

Source: Tao et al. 2025, arXiv:2510.09259 (Self-Critique), and its released code. Per task two greedy answers: one to
the prompt, one to the prompt with the first answer and the request for another way of reasoning. With h the entropy at
each token of an answer,

    score = cosine(h1, h2) * min(|h1|, |h2|) / max(|h1|, |h2|)

where the shorter one is padded with zeros for the cosine: a task that was trained on is answered the same way again.
Baselines are the control without the first answer, the likelihood of the text (Min-K: Shi et al. 2023,
arXiv:2310.16789), and areas with shuffled labels. An area of 1/2 is chance.

The cosine sees the shape of the entropies only, not their size, and is never negative: unrelated answers do not score
0. The factor of the lengths makes it fall with the shorter length.

Differs: entropies are computed from the model's own logits after the answer is written; the token that ends an answer
is one of its tokens. The default wording of the requests is this package's.

Measured here: areas for 100 sums that were trained on against 100 others, the bundled model, 20 steps, 5 seeds. After
GRPO 0.540 [0.504, 0.576], +0.035 [+0.013, +0.057] over the area before; after SFT 0.551 [0.510, 0.592], so that it does
not distinguish the two kinds of training. The likelihood of the demonstrations separates better, 0.676 and 0.741
(docs/experiments.md).
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampler, Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.ranking import auc, best_f1, shuffled_auc, true_positive_rate, youden
from posttrain.types import FloatArray, IntArray, Message, Task

if TYPE_CHECKING:
    from posttrain.policies import Policy

ROWS: Final = (104,)

RESERVED = 50
"""Tokens of the context that the first answer, where it is shown, always leaves for the second."""
MIN_K = 0.2
"""Share of a text's tokens, the least likely ones, whose mean log-probability is the Min-K score."""

Prompt = str | tuple[Message, ...]


@frozen
class Contamination(Diagnostic):
    """Self-Critique, its control and two baselines, on tasks that a model was trained on and others."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    members: Tasks
    """Tasks that the model was trained on, or is suspected to be."""
    others: Tasks
    """Similar tasks that it was certainly not trained on."""
    max_tokens: PositiveInt = 512
    """Longest first answer; second ones may be twice as long (the code: 4096)."""
    again: str = (
        "{prompt}\n\nHere is a possible answer. It may be wrong:\n{answer}\n\nAnswer with a different line of "
        "reasoning, by another way to a solution."
    )
    """Prompt of the second answer: the last message, or the whole of a plain prompt, with {prompt} and {answer}."""
    control: str = "{prompt}\n\nAnswer by an unconventional method."
    """Prompt of the control, which does not contain the first answer."""
    top_k: NonNegativeInt = 50
    """Likeliest tokens that an entropy is summed over; 0 takes all."""
    renormalise: bool = False
    """Whether the probabilities of these tokens are made to add up to 1 first. The code does not."""
    text: Literal["prompt", "demonstration"] = "prompt"
    """Text whose likelihood is the baseline: the prompt, or the first demonstration after it."""

    @model_validator(mode="after")
    def check_requests(self) -> Self:
        """Both prompts must contain the task, and only `again` the answer."""
        for name, text, fits in (
            ("again", self.again, "{prompt}" in self.again and "{answer}" in self.again),
            ("control", self.control, "{prompt}" in self.control and "{answer}" not in self.control),
        ):
            if not fits:
                context = {"name": name, "text": text}
                raise PydanticCustomError(
                    "prompt",
                    "again needs {prompt} and {answer}, control needs {prompt} only; got {name}: {text}",
                    context,
                )
        return self

    def examine(self, *subjects: Subject) -> Finding:
        """Answer every task three times, and measure how well each score separates members from others."""
        from posttrain.components.diagnostics._likelihoods import token_logps, top_entropies

        members, others = self.members.load(), self.others.load()
        self._check(members, others)
        tasks = [*members, *others]
        [subject] = subjects
        policy = subject.load()
        answers = wait_for(self._answer_all(subject.serve(policy), tasks))
        entropies = [
            top_entropies(policy, [row[i].written for row in answers], self.top_k, renormalise=self.renormalise)
            for i in range(3)
        ]
        logps = token_logps(policy, [self._text(policy, task) for task in tasks])
        scores = {
            "self_critique": [similarity(a, b) for a, b in zip(entropies[0], entropies[1], strict=True)],
            "without_answer": [similarity(a, b) for a, b in zip(entropies[0], entropies[2], strict=True)],
            "likelihood": [mean_logp(logp) for logp in logps],
            "min_k": [min_k(logp) for logp in logps],
        }
        items = [
            {"key": task.key, "member": i < len(members)}
            | {name: None if np.isnan(values[i]) else values[i] for name, values in scores.items()}
            | {"tokens": [len(row[i]) for row in entropies]}
            for i, task in enumerate(tasks)
        ]
        found = {name: separation(values[: len(members)], values[len(members) :]) for name, values in scores.items()}
        values = {"members": len(members), "others": len(others), "scores": found, "items": items}
        return Finding(values=values, lines=list(_lines(values)))

    def _check(self, members: Sequence[Task], others: Sequence[Task]) -> None:
        """Raise `UserError` for tasks that cannot be compared."""
        if not (members and others):
            raise UserError(
                f"there are {len(members)} members and {len(others)} others; at least one of each is needed"
            )
        prompts = {str(task.prompt) for task in members}
        shared = [task.key for task in others if str(task.prompt) in prompts]
        if shared:
            raise UserError(
                f"{len(shared)} tasks are among the members and among the others, the first is {shared[0]}; take them "
                "out of one of the two"
            )
        bare = [task.key for task in (*members, *others) if not task.demonstrations]
        if self.text == "demonstration" and bare:
            raise UserError(f"task {bare[0]} has no demonstration to compute the likelihood of; write text=prompt")

    async def _answer_all(self, server: Server, tasks: Sequence[Task]) -> "list[tuple[_Answer, ...]]":
        """The three answers to every task."""
        return list(await asyncio.gather(*(self._answer_thrice(server, task) for task in tasks)))

    async def _answer_thrice(self, server: Server, task: Task) -> "tuple[_Answer, ...]":
        """The answer to the task, to `again` with that answer, and to the control."""
        sampler = server.bind("contamination", task.key)
        first = await _answer(sampler, task.prompt, self.max_tokens)
        shown = first.text
        length = len(sampler.encode(_filled(self.again, task.prompt, "")))
        room = sampler.context - length - RESERVED
        if len(first.token_ids) > room:
            shown = sampler.decode(first.token_ids[: max(room, 0)])
        missing = room <= 0 or not len(first.token_ids)
        again = "" if missing else _filled(self.again, task.prompt, shown)
        second = await _answer(sampler, again, 2 * self.max_tokens)
        control = await _answer(sampler, _filled(self.control, task.prompt, ""), 2 * self.max_tokens)
        return first, second, control

    def _text(self, policy: "Policy", task: Task) -> "tuple[IntArray, int]":
        """The tokens of the baselines; of a prompt all but the first, which has no context."""
        prompt_ids = policy.tokenizer.encode_prompt(task.prompt)
        if self.text == "prompt":
            return prompt_ids, 1
        text_ids = policy.tokenizer.encode_completion(task.prompt, task.demonstrations[0])
        return np.concatenate([prompt_ids, text_ids]), max(1, len(prompt_ids))


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """A prompt and the greedy answer to it; empty where there was no room for one."""

    prompt_ids: IntArray
    token_ids: IntArray
    text: str = ""

    @property
    def written(self) -> tuple[IntArray, int]:
        """All tokens, and the index at which the answer starts."""
        return np.concatenate([self.prompt_ids, self.token_ids]).astype(np.int64), len(self.prompt_ids)


async def _answer(sampler: Sampler, prompt: Prompt, max_tokens: int) -> _Answer:
    """The greedy answer; none where the prompt is empty or leaves no room."""
    prompt_ids = sampler.encode(prompt) if prompt else np.zeros(0, np.int64)
    if not 0 < len(prompt_ids) < sampler.context:
        return _Answer(prompt_ids=np.zeros(0, np.int64), token_ids=np.zeros(0, np.int64))
    [completion] = await sampler.sample(prompt_ids, 1, Sampling(temperature=0.0, max_tokens=max_tokens))
    return _Answer(prompt_ids=prompt_ids, token_ids=completion.token_ids, text=completion.text)


def _filled(template: str, prompt: Prompt, answer: str) -> Prompt:
    """A template filled with a prompt: with plain text, or with the last of its messages."""

    def put(text: str) -> str:
        return re.sub(r"\{(prompt|answer)\}", lambda found: text if found[1] == "prompt" else answer, template)

    if isinstance(prompt, str):
        return put(prompt)
    return (*prompt[:-1], Message(role=prompt[-1]["role"], content=put(prompt[-1]["content"])))


def similarity(first_T: FloatArray, second_T: FloatArray) -> float:
    """Cosine of two entropy sequences, the shorter padded with zeros, times the ratio of their lengths.

    NaN where one is empty, 0 where one has no entropy at all.
    """
    short, long = sorted((np.asarray(first_T, np.float64), np.asarray(second_T, np.float64)), key=len)
    if not len(short):
        return float("nan")
    norms = float(np.linalg.norm(short) * np.linalg.norm(long))
    if norms == 0:
        return 0.0
    return float(short @ long[: len(short)]) / norms * len(short) / len(long)


def mean_logp(logp_T: FloatArray) -> float:
    """Mean log-probability, the reverse ranking of perplexity; NaN without tokens."""
    return float(np.mean(logp_T, dtype=np.float64)) if len(logp_T) else float("nan")


def min_k(logp_T: FloatArray, share: float = MIN_K) -> float:
    """Mean log-probability of the least likely share of the tokens, at least one; NaN without tokens."""
    return mean_logp(np.sort(logp_T)[: max(1, int(len(logp_T) * share))])


def separation(members: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """How well a score separates members from others, without undefined scores; None where none is left."""
    sound = [[value for value in values if not np.isnan(value)] for values in (members, others)]
    left_out = [len(members) - len(sound[0]), len(others) - len(sound[1])]
    if not (sound[0] and sound[1]):
        return {"left_out": left_out, "auc": None}
    area = auc(sound[0], sound[1])
    mean, middle, p = shuffled_auc(*sound)
    return {
        "left_out": left_out,
        "auc": area.value,
        "interval": list(area.interval),
        "shuffled": {"mean": mean, "middle": list(middle), "p": p},
        "best_f1": best_f1(*sound),
        "youden": youden(*sound),
        "true_positives_at_5": true_positive_rate(*sound),
        "means": [float(np.mean(values)) for values in sound],
    }


def _lines(values: dict[str, Any]) -> Sequence[str]:
    """One line per score."""
    lines = [f"{values['members']} members, {values['others']} others; area under the ROC curve [95 %], 0.5 is chance"]
    for name, found in values["scores"].items():
        left_out = f"; {sum(found['left_out'])} tasks left out" if sum(found["left_out"]) else ""
        if found["auc"] is None:
            lines.append(f"{name:<14}  not defined{left_out}")
            continue
        low, high = found["interval"]
        shuffled = found["shuffled"]
        lines.append(
            f"{name:<14}  {found['auc']:.3f} [{low:.3f}, {high:.3f}], labels shuffled {shuffled['middle'][0]:.3f} to "
            f"{shuffled['middle'][1]:.3f} (p = {shuffled['p']:.3g}), {found['true_positives_at_5']:.0%} of the members "
            f"at 5 % false alarms{left_out}"
        )
    return lines
