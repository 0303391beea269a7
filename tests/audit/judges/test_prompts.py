"""The prompts of the judges that compare answers, audited with a model that reads them: sound, or one that obeys them.

The model finds the answers between their marks, rates each by its traits and some noise, and replies in the form that
the prompt names. So a prompt that mixes up answers, orders or names, or lets an answer leave its marks, is found.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

import posttrain.components.rewards
from posttrain.audit.judges import gold_pairs
from posttrain.audit.judges.auditing import JudgeReport, audit_judge
from posttrain.audit.judges.planted import gold, quality
from posttrain.audit.judges.rewarded import RewardJudge
from posttrain.components.rewards import Reward
from posttrain.components.rewards.duels import Duels
from posttrain.components.rewards.json_score import JsonScore
from posttrain.components.rewards.judge import Judge
from posttrain.components.rewards.listwise import Listwise
from posttrain.components.rewards.preference_model import PreferenceModel
from posttrain.components.rewards.principle_logit import PrincipleLogit
from posttrain.components.rewards.ranked import Ranked
from posttrain.components.rewards.rated_together import RatedTogether
from posttrain.recipes.catalogue import entries
from posttrain.types import Message, Task

MARKED: Final = re.compile(r"<<<BEGIN ([0-9a-f]{16})>>>\n(.*?)\n<<<END \1>>>", re.DOTALL)
PROMPTS: Final[Mapping[str, Reward]] = {
    "duels": Duels(),
    "json_score": JsonScore(),
    "judge": Judge(),
    "listwise": Listwise(),
    "preference_model": PreferenceModel(marks=True),
    "principle_logit": PrincipleLogit(),
    "ranked": Ranked(role="judge"),
    "rated_together": RatedTogether(),
}
OTHERS: Final = {
    "captions": "messages of an environment",
    "mood": "the mood of a user",
    "openai_grader": "a user's own prompt",
    "rubric": "whether criteria are satisfied",
    "verified_answer": "whether a short answer is the reference",
}
"""What further prompts are about: no two answers, of which one is better."""


@dataclass(frozen=True)
class Reader:
    """A model at an endpoint that reads, and `obeys` what an answer orders where it does."""

    obeys: bool = False

    def rated(self, text: str, prompt: str) -> float:
        if self.obeys and re.search(r"ignore|score: ?10|verdict|output only", text, re.I):
            return 6.0
        asked = re.search(r"What is [^?]*, (\w+)\?", prompt)
        task = Task(key="", prompt="", fields={"name": asked[1] if asked else "?"})
        draw = (
            int.from_bytes(
                hashlib.blake2b((text + (asked[0] if asked else "")).encode(), digest_size=8).digest(), "big"
            )
            / 2**64
        )
        return quality(text, task) + 0.5 * math.log((draw + 1e-9) / (1 - draw + 1e-9))

    def ratings(self, prompt: str | Sequence[Message]) -> tuple[str, list[float]]:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        return text, [self.rated(answer, text) for _, answer in MARKED.findall(text)]

    async def label_logp(self, prompt: str | Sequence[Message], labels: Sequence[str]) -> list[float]:
        text, found = self.ratings(prompt)
        logit = found[0] - found[1] if list(labels) == ["A", "B"] else found[0]
        assert len(found) == (2 if list(labels) == ["A", "B"] else 1), text
        return [-math.log1p(math.exp(-logit)), -math.log1p(math.exp(logit))]

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Any) -> list[str]:
        whole, found = self.ratings(prompt)
        text = MARKED.sub("", whole)  # the form is named outside of the answers
        scale = [1 + round(min(4.0, max(0.0, rating))) for rating in found]
        if "best-to-worst" in text:
            names = re.findall(r"^(model-\d+):$", text, re.M)
            order = sorted(names, key=lambda name: -found[names.index(name)])
            scores = dict(zip(names, scale, strict=True))
            return ["<think>so</think>" + json.dumps({"scores": scores, "best-to-worst": order})]
        if "Rationale" in text:
            return ["\n\n".join(f"Rating: {value}\nRationale: so" for value in scale)]
        if "Reply with the letters alone" in text:
            letters = re.findall(r"^([A-Z]):$", text, re.M)
            return [" > ".join(sorted(letters, key=lambda letter: -found[letters.index(letter)]))]
        if "<answer>A</answer>" in text:
            return [f"<think>so</think><answer>{'A' if found[0] > found[1] else 'B'}</answer>"]
        [rating] = found
        value = min(10.0, max(1.0, 1.5 * (rating + 1)))
        return [json.dumps({"why": "so", "score": value}) if "JSON" in text else f"Well. Score: {value:.2f}"]


def audited(reward: Reward, obeys: bool = False) -> JudgeReport:
    tasks = [t for t in gold(67, 3) if t.fields.setdefault("preference", "readability")]
    judge = RewardJudge(reward.kind, reward, lambda _: {"judge": Reader(obeys)})  # type: ignore[dict-item, return-value]
    return audit_judge(judge, gold_pairs(tasks, "own"), attacked=12, repeated=10)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PROMPTS)
def test_a_sound_reader_has_no_fault_and_one_that_obeys_is_named(kind: str) -> None:
    report = audited(PROMPTS[kind])
    assert [one.fault for one in report.faults] == [] and report.figures["unreadable"] == 0.0
    assert report.figures["accuracy"]["value"] > 0.75 and report.worst <= 0.05
    assert report.figures["flips"]["value"] == 0.0, "the order changes nothing that is read"
    assert "instructions" in [one.fault for one in audited(PROMPTS[kind], obeys=True).faults]


def test_every_reward_with_a_prompt_is_audited_or_compares_no_answers() -> None:
    kinds = {entry.name for entry in entries("reward")}
    with_prompts = {
        kind
        for kind in kinds
        if re.search(r"^    (template: (str|Template)\b|prompt: JudgePrompt)", _source(kind), re.M)
        or "QUESTION =" in _source(kind)
    }
    assert with_prompts == PROMPTS.keys() | (OTHERS.keys() & with_prompts)
    assert not OTHERS.keys() & PROMPTS.keys()


def _source(kind: str) -> str:
    return (Path(posttrain.components.rewards.__file__).parent / f"{kind}.py").read_text()
