"""The formulas of rewards against a second writing of each, on 3,000 random cases."""

import difflib
import itertools
import json
import math
import re
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.choice import Choice
from posttrain.components.rewards.episodic_memory import EpisodicMemory
from posttrain.components.rewards.listed import Listed
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.next_action import NextAction
from posttrain.components.rewards.phrases import PHRASES, Phrases
from posttrain.components.rewards.proved import Proved
from posttrain.components.rewards.raised import Raised
from posttrain.components.rewards.reranked import Reranked
from posttrain.components.rewards.translated import Translated
from posttrain.components.rewards.verified_answer import VerifiedAnswer
from posttrain.grading.branches import Run, credit
from posttrain.grading.edit_blocks import open_comparison
from posttrain.grading.ranked_lists import gain, ranked, reciprocal_rank
from posttrain.grading.text_pieces import embedded
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all

CASES = 3000
pytestmark = pytest.mark.slow


def values(reward: Reward, texts: list[str], task: Task) -> list[float]:
    return [score.value for score in score_all(reward, *(attempt(text, task) for text in texts))]


def test_patches() -> None:
    """Differences of 3 lines of context written by hand, for files of which single lines change."""
    rng, compare = Random(17), open_comparison(None)
    for case in range(CASES):
        files = {path: [f"{path}{i}={rng.choice('xyz')}" for i in range(rng.randint(1, 12))] for path in "ab"}
        sides = []
        for path in ("a", rng.choice("ab")):
            changed = {at: f"{rng.choice('pqx')}{at}" for at in rng.sample(range(len(files[path])), 1)}
            sides.append((path, changed))
        (own, edit), (other, wanted) = sides
        after = [wanted.get(at, line) for at, line in enumerate(files[other])]
        [(at, new)] = edit.items()
        block = f"```\n### {own}\n<<<<<<< SEARCH\n{files[own][at]}\n=======\n{new}\n>>>>>>> REPLACE\n```"
        call = {
            "completion": f"<think>so</think><solution>\n{block}\n</solution>",
            "files": {path: "\n".join(lines) for path, lines in files.items()},
            "oracle": {other: "\n".join(after)},
            "longest": 4000,
        }
        found = compare(call)["similarity"]
        texts = [_hunk(files[path], change) for path, change in sides]
        ratio = difflib.SequenceMatcher(None, *texts, autojunk=False).ratio()
        assert found == pytest.approx(ratio if own == other else 0.0), (case, texts)


def _hunk(lines: list[str], changed: dict[int, str]) -> str:
    [(at, new)] = changed.items()
    start, end = max(0, at - 3), min(len(lines), at + 4)
    size = f"{start + 1},{end - start}" if end - start > 1 else f"{start + 1}"
    body = [f" {line}" for line in lines[start:end]]
    body[at - start : at - start + 1] = [f"-{lines[at]}", f"+{new}"]
    return "\n".join([f"@@ -{size} +{size} @@", *body])


def test_rankings() -> None:
    """The worst, or the best, of all orders in which no smaller score is before a larger one."""
    rng = Random(73)
    for _ in range(CASES):
        count, at = rng.randint(1, 5), rng.randint(1, 6)
        scores, relevant = rng.choices(range(3), k=count), rng.choices((True, False), k=count)
        orders = [
            order
            for order in itertools.permutations(range(count))
            if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
        ]
        first = [next((1 / (i + 1) for i, d in enumerate(order[:at]) if relevant[d]), 0.0) for order in orders]
        gained = [sum(relevant[d] / math.log2(i + 2) for i, d in enumerate(order[:at])) for order in orders]
        most = sum(1 / math.log2(i + 2) for i in range(min(at, sum(relevant)))) or 1.0
        for optimistic, pick in ((False, min), (True, max)):
            ranks = ranked(scores, relevant, optimistic=optimistic)
            assert reciprocal_rank(ranks, at) == pytest.approx(pick(first))
            assert gain(ranks, at) == pytest.approx(pick(gained) / most)


def test_orders_of_passages() -> None:
    rng = Random(162)
    for _ in range(CASES // 10):
        count = rng.randint(2, 12)
        numbers = list(range(1, count + 1))
        teacher, relevant = rng.sample(numbers, count), rng.sample(numbers, rng.randint(1, count))
        task = Task(key="p", prompt="p", fields={"relevant": relevant, "order": teacher})
        orders = [rng.sample(numbers, count) for _ in range(9)] + [rng.choices(range(count + 2), k=count)]
        texts = [f"<think>-</think><answer>{' > '.join(f'[{i}]' for i in order)}</answer>" for order in orders]
        for order, value in zip(orders, values(Reranked(), texts, task), strict=True):
            if set(order) != set(numbers):
                assert value == 0.0
                continue
            hit = np.isin(order, relevant)[:10]
            discount = 1 / np.log2(np.arange(2, 12))
            ndcg = (hit * discount[: len(hit)]).sum() / discount[: len(relevant)].sum()
            overlap = np.mean([len({*order[:d]} & {*teacher[:d]}) / d for d in range(1, count + 1)])
            assert value == pytest.approx(ndcg + 0.2 * hit.sum() / len(relevant) + 0.1 * overlap)


def test_translations() -> None:
    """BLEU of four orders with exponential smoothing and the penalty for short texts."""
    pytest.importorskip("sacrebleu")
    rng = Random(252)
    for _ in range(CASES // 10):
        reference = " ".join(rng.choices("abcd", k=rng.randint(1, 9)))
        task = Task(key="t", prompt="source", answer=reference)
        made = [" ".join(rng.choices("abcd", k=rng.randint(0, 9))) for _ in range(9)] + [reference]
        texts = [f"<think>-</think><translate>{text}</translate>" for text in made]
        texts[0] = texts[0].replace("</think>", "")
        first, *found = values(Translated(), texts, task)
        assert first == -3.0
        for text, value in zip(made[1:], found, strict=True):
            wanted = 1 + _bleu(text.split(), reference.split()) if text else -1.0
            assert value == pytest.approx(wanted, abs=6e-5)


def _bleu(words: list[str], wanted: list[str]) -> float:
    total, halved = 0.0, 1.0
    for n in range(1, 5):
        grams, others = (Counter(zip(*(own[i:] for i in range(n)), strict=False)) for own in (words, wanted))
        if not grams:
            return 0.0
        common = sum((grams & others).values())
        if n == 1 and not common:
            return 0.0
        halved *= 1.0 if common else 2.0
        total += math.log((common or 1 / halved) / sum(grams.values())) / 4
    return math.exp(total + min(0.0, 1 - len(wanted) / len(words)))


def _action(rng: Random) -> dict[str, str]:
    kind = rng.choice(("click", "type_and_submit", "terminate"))
    fields = {"click": ("name",), "type_and_submit": ("name", "text"), "terminate": ()}[kind]
    return {"type": kind, **{name: " ".join(rng.choices("abc", k=rng.randint(1, 5))) for name in fields}}


def test_actions() -> None:
    rng = Random(175)
    for _ in range(CASES // 10):
        wanted = _action(rng)
        task = Task(key="a", prompt="a", answer=json.dumps(wanted))
        made = [_action(rng) for _ in range(9)] + [wanted]
        found = values(NextAction(), [json.dumps({"rationale": "", "action": own}) for own in made], task)
        for own, value in zip(made, found, strict=True):
            expected = 0.5
            if own["type"] == wanted["type"]:
                similar = {name: _similar(own[name], wanted[name]) for name in own if name != "type"}
                expected += 0.3 + 0.2 * bool(similar)
                expected += 0.1 * similar["name"] if len(similar) == 2 else 0.0
                expected += 1000 * similar[[*similar][-1]] if similar else 0.0
            assert value == pytest.approx(expected), (own, wanted)


def _similar(text: str, other: str) -> float:
    a, b = text.split(), other.split()
    table = np.zeros((len(a) + 1, len(b) + 1))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1, j + 1] = table[i, j] + 1 if x == y else max(table[i, j + 1], table[i + 1, j])
    value = float(2 * table[-1, -1] / (len(a) + len(b)))
    return value if value > 0.75 else 0.0


def test_options() -> None:
    rng = Random(244)
    task = Task(key="o", prompt="o", answer="B", fields={"options": ["x", "y", "z"]})
    pieces = ("\\boxed{A}", "\\boxed{B}", "\\boxed{B or C}", "\\boxed{ (b). }", "\\boxed{}", "B", "so ", "\\boxed{D}")
    texts = ["".join(rng.choices(pieces, k=rng.randint(0, 4))) for _ in range(CASES)]
    for text, value in zip(texts, values(Choice(), texts, task), strict=True):
        boxes = re.findall(r"\\boxed\{(.*?)\}", text)
        assert value == (bool(boxes) and boxes[-1] in ("B", " (b). ")), text


def test_verdicts() -> None:
    rng = Random(256)
    task = Task(key="v", prompt="Is it?", fields={"truth": True})
    pieces = (
        *("<answer>", "</answer>", "</think>", " so it is ", "a" * 40, "User:", "reasoning process"),
        *("\\boxed{proved}", "\\boxed{disproved}", "\\boxed{\\text{Proved}.}", "\\boxed{proved or disproved}"),
    )
    texts = ["".join(rng.choices(pieces, k=rng.randint(0, 6))) for _ in range(CASES // 2)]
    texts += [
        f"{rng.choice(pieces)} so it is <answer> {''.join(rng.choices(pieces[7:], k=2))} </answer>"
        for _ in range(CASES // 2)
    ]
    right = 0
    for text, value in zip(texts, values(Proved(), texts, task), strict=True):
        blank = len(re.findall("[ \n]", text)) < 0.05 * len(text) or not text
        gate = blank or "User:" in text or ("reasoning process" in text and len(text) < 90)
        answers = re.findall(r"<answer>(.*?)</answer>", text.split("</think>")[-1], re.DOTALL)
        boxes = [own[-1] for answer in answers if (own := re.findall(r"\\boxed\{((?:\\text\{.*?\}|[^{}])*)\}", answer))]
        expected = not gate and bool(boxes) and re.sub(r"\W|text", "", boxes[-1]).lower() == "proved"
        assert value == expected, text
        right += expected
    assert right > 100


def test_verified_answers() -> None:
    rng = Random(245)
    for _ in range(CASES // 10):
        reference = " ".join(rng.choices(("1", "22", "x"), k=rng.randint(1, 3)))
        task = Task(key="v", prompt="v", answer=reference, fields={"forms": [reference, "x 1 22", "x " * 15 + "x"]})
        made = [rng.choice(("x 1 22", reference, "22", "1 x", "x " * 15 + "x", None)) for _ in range(10)]
        texts = ["none" if own is None else f"so \\boxed{{{own}}}" for own in made]
        for own, value in zip(made, values(VerifiedAnswer(verifier=Listed()), texts, task), strict=True):
            lengths = [len([c for c in text if c.isdigit()]) + text.count("x") for text in (own or "", reference)]
            passed = own in task.fields["forms"]
            apart = abs(lengths[0] - lengths[1])
            assert value == pytest.approx(passed * (1 - 0.05 * min(10, apart)) - 0.5 * (own is None)), (own, reference)


def test_branch_distances() -> None:
    rng = Random(124)
    for _ in range(CASES):
        count = rng.randint(1, 8)
        passed = rng.randint(0, count)
        distance = rng.choice((None, 1, 2.5, 40, 1e9))
        nearest: list[Any] = [0] * passed + [distance] * (passed < count) + [None] * (count - passed - 1)
        end = rng.choice(("returned", "crashed", "hung", "refused"))
        run = Run(end, passed == count, tuple(nearest))
        near = 0.999 / (1 + distance) if distance is not None and passed < count else 0.0
        expected = 1.0 if passed == count else 0.0 if end == "refused" else (passed + near) / count
        assert credit(run) == pytest.approx(expected)
        assert credit(run, "target") == (passed == count)
        steps = passed / count if end != "refused" or passed == count else 0.0
        assert credit(run, "passed") == pytest.approx(steps)


def test_phrases_and_what_they_raise() -> None:
    rng = Random(154)
    task = Task(key="s", prompt="s", answer="7")
    pieces = [*PHRASES, "the same words " * 8, "user: ", "<think>", "other", "Wait,"]
    texts = [" ".join(rng.choices(pieces, k=rng.randint(0, 40))) + rng.choice(("", "\n7")) for _ in range(CASES)]
    found = values(Phrases(), texts, task)
    raised = values(Raised(of=Match(), by=Phrases(), weight=0.2, cap=0.5), texts, task)
    plain = values(Match(), texts, task)
    for text, value, after, before in zip(texts, found, raised, plain, strict=True):
        counted = text[text.index("<think>") + 7 :].lower() if "<think>" in text else text.lower()
        grams = list(zip(*(counted.split()[i:] for i in range(20)), strict=False))
        repeated = len({gram for gram in grams if grams.count(gram) > 1}) / max(1, len(grams))
        share = min(1.0, len([phrase for phrase in PHRASES if counted.find(phrase) >= 0]) / 20)
        expected = max(0.0, share - repeated - len(re.findall("user: ", counted)))
        assert value == pytest.approx(expected)
        assert after == pytest.approx(before if before >= 0.5 else min(0.5, before + 0.2 * expected))


def test_memories() -> None:
    """One question: distances to the mean of all successes so far, novelties beside the nearest failure."""
    rng, words = Random(91), ("add", "carry", "sum", "ten", "less")
    for _ in range(CASES // 30):
        reward, state = EpisodicMemory(of=Match(extract=("last_line",)), warm_up=1), {}
        task = Task(key="m", prompt="3+4=", answer="7")
        success, failure, distances, novelties = list[str](), list[str](), list[float](), list[float]()
        for step in range(5):
            made = [(" ".join(rng.choices(words, k=rng.randint(1, 3))), rng.choice("78")) for _ in range(6)]
            attempts = [attempt(f"<think>{text}</think>\n{answer}", task) for text, answer in made]
            context = replace(RewardContext(), step=step, learning=True, state=state)
            for (text, answer), score in zip(made, score_all(reward, *attempts, context=context), strict=True):
                (success if answer == "7" else failure).append(text)
                point, expected = embedded(text), float(answer == "7")
                if success:
                    center = sum(map(embedded, success)) / len(success)
                    distances = [*distances, float(np.sqrt(((point - center) ** 2).sum()))][-100:]
                    low, high = min(distances), max(distances)
                    expected += 1 - (distances[-1] if low == high else (distances[-1] - low) / (high - low))
                if failure:
                    novelty = 1 - max(float((point * embedded(own)).sum()) for own in failure)
                    novelties = [*novelties, novelty if novelty >= 1e-9 else 0.0][-100:]
                    low, high = min(novelties), max(novelties)
                    expected += (novelties[-1] - low) / (high - low) if high > low else 0.0
                assert score.value == pytest.approx(expected, abs=1e-6)
