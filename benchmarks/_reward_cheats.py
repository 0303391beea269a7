"""Texts by which rewards are deceived, or could be, with the exact reward of each."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import posttrain
from posttrain.components.rewards import Reward
from posttrain.components.rewards.branch_distance import BranchDistance
from posttrain.components.rewards.choice import Choice
from posttrain.components.rewards.equations import Equations
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.kernel import Kernel
from posttrain.components.rewards.listed import Listed
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.next_action import NextAction
from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.rewards.phrases import PHRASES, Phrases
from posttrain.components.rewards.process import Process
from posttrain.components.rewards.proved import Proved
from posttrain.components.rewards.raised import Raised
from posttrain.components.rewards.refactored import Refactored
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.reranked import Reranked
from posttrain.components.rewards.segments import Segments
from posttrain.components.rewards.suite import Suite
from posttrain.components.rewards.text_similarity import TextSimilarity
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.rewards.translated import Translated
from posttrain.components.rewards.verified_answer import VerifiedAnswer
from posttrain.methods.rewards.autotriton import RULE
from posttrain.sandbox.launch import Tier
from posttrain.types import Task

ANY: Tier = "none"
"""The weakest sandbox that is allowed: programs run in the strongest that there is."""


@dataclass(frozen=True)
class Cheat:
    """A text, and its exact reward; `most` is that of a right one."""

    row: int
    name: str
    reward: Reward
    task: Task
    text: str
    pay: float
    most: float

    @property
    def accepted(self) -> bool:
        """Whether its reward is that of a right text."""
        return self.pay >= self.most

    @property
    def runs(self) -> bool:
        """Whether programs are run."""
        return bool(self.reward.runs) or isinstance(self.reward, BranchDistance)


def cheats() -> Iterator[Cheat]:
    """All of them, by row."""
    yield from _patches()
    yield from _functions()
    yield from _programs()
    yield from _texts()
    yield from _calls()
    yield from _answers()
    yield from _steps()


def _patch(*edits: tuple[str, str, str]) -> str:
    blocks = [f"```\n### {at}\n<<<<<<< SEARCH\n{was}\n=======\n{now}\n>>>>>>> REPLACE\n```" for at, was, now in edits]
    return "<think>so</think><solution>\n" + "\n".join(blocks) + "\n</solution>"


def _patches() -> Iterator[Cheat]:
    functions = [f"def f{name}(x):\n    return x + {number}" for number, name in enumerate("abcdefghijkl")]
    file, old, new = "\n\n".join(functions) + "\n", "    return x + 5", "    return x * 5"
    fields = {"files": {"a.py": file, "b.py": "y = 1\n"}, "oracle": {"a.py": file.replace(old, new)}}
    task = Task(key="patch", prompt="Use * in ff.", fields=fields)
    for name, pay, edits in (
        ("the right line with nonsense", 0.9386, [("a.py", old, "    qwertz")]),
        ("a comment in the right line", 0.9789, [("a.py", old, f"{old}  #")]),
        ("edits that undo each other", 0.0, [("a.py", old, "    q"), ("a.py", "    q", old)]),
        ("a path outside", 0.5, [("a.py", old, new), ("../../etc/passwd", "", "x")]),
        ("no change", -1.0, [("a.py", old, old)]),
    ):
        yield Cheat(17, name, PatchSimilarity(), task, _patch(*edits), pay, 1.0)


def _functions() -> Iterator[Cheat]:
    source = "def f(a,b):\n c=a*3\n d=c+b\n return d-2\n"
    gold = "def f(a,b):\n d = g(a, b)\n return d-2\n\ndef g(a, b):\n c=a*3\n d=c+b\n return d\n"
    fields = {"source": source, "function": "f", "inputs": [[1, 2], [0, -5]]}
    task = Task(key="function", prompt=source, answer=gold, fields=fields)
    for execution, most in ((False, 3.0), (True, 4.0)):
        reward = Refactored(execution=execution, weakest=ANY)
        words = ", run" if execution else ""
        yield Cheat(93, f"a copy{words}", reward, task, source, most - 1, most)
        unused = f"{source}\ndef g(a):\n c=a*3\n return c\n"
        yield Cheat(93, f"a function that nothing calls{words}", reward, task, unused, most - 1, most)
        yield Cheat(93, f"a changed meaning{words}", reward, task, gold.replace("d-2", "d-3"), 3.0, most)


def _programs() -> Iterator[Cheat]:
    reference = "def f(x, y):\n    return 3 * x + y\n"
    task = Task(key="kernel", prompt="", fields={"reference": reference, "inputs": [["float32[3,5]"] * 2]})
    own = (
        "@kernel\ndef k(i, x, y, out):\n    out[i] = 3 * x[i] + y[i]\n\n"
        "def f(x, y):\n    out = empty(x)\n    k[len(x)](x, y, out)\n    return out\n"
    )
    values = Kernel(dialect="toy", weakest=ANY)
    reward = Gated(reward=values, gate={"uses": RULE})
    only = Kernel(dialect="toy", strict=False, compiles=False, weakest=ANY)
    launches = own.replace("return out", "return x + y")
    yield Cheat(96, "launches, then returns the sum", reward, task, launches.replace("x + y", "3 * x + y"), 0.0, 1.0)
    yield Cheat(96, "the same, by tests alone", only, task, launches.replace("x + y", "3 * x + y"), 1.0, 1.0)
    yield Cheat(96, "prints equality", reward, task, "print('allclose: True')\ndef f(x, y):\n    print(1)\n", 0.0, 1.0)
    yield Cheat(96, "the library", reward, task, reference, 0.0, 1.0)

    source = "def f(a, b):\n    if a == 12:\n        if b >= a + 3:\n            return 1\n"
    line = Task(key="line", prompt="", fields={"source": source, "line": 4})
    near = BranchDistance(weakest=ANY)
    forged = '[0, ["value", ["str", "[\\"returned\\", true, []]"]]]'
    yield Cheat(124, "an input that ends the tracer", near, line, "__import__('os')._exit(0), 1", 0.0, 1.0)
    yield Cheat(124, "the tracer's mark", near, line, "_posttrain_reach(), 1", 0.0, 1.0)
    yield Cheat(124, "a forged log", near, line, forged, 0.0, 1.0)
    yield Cheat(124, "a forged log for a number", near, line, f"{forged!r}, 15", 0.999 / 2 / 2, 1.0)

    right = ["def f(x):\n    return abs(x)", "def f(x):\n    return max(x, -x)"]
    wrong = ["def f(x):\n    return x", "def f(x):\n    return -x", "def f(x):\n    raise ValueError"]
    suite = Task(key="suite", prompt="Test f.", fields={"correct": right, "wrong": wrong})
    kills = Suite(weakest=ANY)
    for name, text, pay in (
        ("rejects all", "assert False", 0.0),
        ("the source", "import inspect\nassert 'abs' in inspect.getsource(f)", 0.0),
        ("the clock", "import time\nassert f(time.time()) == 1", 0.0),
        ("an exit", "import os\nos._exit(1)", 0.0),
        ("clones", "assert f(2) == 2\n" * 50, 2 / 3),
        ("a wrong result", "assert f(2) == 3\nassert f(-2) == 2", 0.0),
    ):
        yield Cheat(286, name, kills, suite, text, pay, 1.0)


def _texts() -> Iterator[Cheat]:
    line = Task(key="line", prompt="print(right, le", answer="n(right))")
    yield Cheat(100, "the right line and filler", TextSimilarity(), line, "n(right))" + " " * 9, 2 / 3, 1.0)

    order = Task(key="order", prompt="q", fields={"relevant": [2, 4], "order": [2, 4, 1, 3]})
    for name, text, pay in (
        ("digits in words", "passage 2, then 4, 1 and 3", 0.0),
        ("a number twice", "2>2>4>1", 0.0),
        ("all, and one again", "2>4>1>3>3", 0.0),
        ("the number 0", "0>2>4>1", 0.0),
        ("a number beyond", "2>4>1>9", 0.0),
        ("no tags", "", -1.0),
    ):
        whole = f"<think>x</think><answer>{text}</answer>" if text else "2>4>1>3"
        yield Cheat(162, name, Reranked(), order, whole, pay, 1.3)

    cipher = Task(key="c", prompt="ba de gi ko mu", answer="the dog sees a cat", fields={"source": "ba de gi ko mu"})
    for name, text, pay in (
        ("the source copied", "ba de gi ko mu", 1.0),
        ("the translation twice", "the dog sees a cat the dog sees a cat", 1.3928),
        ("shuffled", "cat a sees dog the", 1.1597),
    ):
        whole = f"<think>x</think><translate>{text}</translate>"
        yield Cheat(252, name, Translated(), cipher, whole, pay, 2.0)
    three = Task(key="c3", prompt="x y z", answer="a red cat")
    said = "<think>x</think><translate>a red cat</translate>"
    yield Cheat(252, "three right words, by BLEU", Translated(), three, said, 1.0, 2.0)
    yield Cheat(252, "three right words, effective order", Translated(effective_order=True), three, said, 2.0, 2.0)

    bad = Segments(of=Regex(pattern="darn"), faults=True, right=0.0, wrong=-1.0)
    plain = Task(key="text", prompt="About: fox", answer="")
    yield Cheat(216, "ten faults in one endless sentence", bad, plain, " ".join(["darn"] * 10), -1.0, 0.0)
    yield Cheat(216, "ten faults in ten sentences", bad, plain, " ".join(["darn."] * 10), -10.0, 0.0)


def _calls() -> Iterator[Cheat]:
    call, other = {"name": "f", "parameters": {"a": 1, "b": 2}}, {"name": "g", "parameters": {}}

    def text(*lines: str) -> str:
        own = "\n".join(lines)
        return f"<think>so</think>\n<tool_call>\n{own}\n</tool_call>"

    one = json.dumps(call)
    task = Task(key="call", prompt="Call.", answer=one)
    for name, whole, pay in (
        ("a call too many", text(one, json.dumps(other)), 4 - 6 * 0.5 / 4),
        ("a second block", f"{text(one)}\n{text(one)}", 3.0),
        ("a list on a line", text(f"[{one}]"), -2.0),
        ("true for 1", text(json.dumps({**call, "parameters": {"a": True, "b": 2}})), 2.5),
        ("a key twice", text('{"name": "f", "parameters": {"a": 1, "a": 1, "b": 2}}'), -2.0),
    ):
        yield Cheat(170, name, ToolCalls(), task, whole, pay, 4.0)
    click, end = {"type": "click", "name": "red tea cup"}, {"type": "terminate"}
    done = Task(key="shop", prompt="", answer=json.dumps(click), fields={"pages": ["x"]})
    ended = Task(key="end", prompt="", answer=json.dumps(end), fields={"pages": ["x"]})
    stuffed = {**click, "name": "add the blue tea cup add the red tea cup open the cart search buy"}
    for name, of, action, pay, most in (
        ("terminate, where that is right", ended, end, 0.8, 0.8),
        ("terminate, where a click is", done, end, 0.5, 1001.0),
        ("stuffed text", done, stuffed, 1.0, 1001.0),
    ):
        yield Cheat(175, name, NextAction(), of, json.dumps({"rationale": "so", "action": action}), pay, most)


def _answers() -> Iterator[Cheat]:
    sums = Task(key="sum", prompt="What is 6 times 7?", answer="42")
    empty = "<think>Wait, let me check. Alternatively, hold on. Hmm, wait.</think> 41"
    yield Cheat(39, "keywords without content", Match(), sums, empty, 0.0, 1.0)
    order = posttrain.recipe("timehc_rl").stages["rl"].reward  # type: ignore[attr-defined]
    story = Task(key="story", prompt="key?", answer="jar", fields={"shuffled": "key?"})
    yield Cheat(143, "the shuffled copy failed", order, story, "<answer>shed</answer>", -0.5, 3.0)
    listed = Raised(of=Match(), by=Phrases(), below=0.5)
    every = " ".join(PHRASES) + " 41"
    yield Cheat(154, "the 40 phrases, alone", Phrases(), sums, every, 1.0, 1.0)
    yield Cheat(154, "the 40 phrases, a wrong answer", listed, sums, every, 0.1, 1.0)
    letters = Task(key="letter", prompt="?", answer="B", fields={"options": ["aspirin", "zinc", "salt", "iron"]})
    for text in ("B or A", "A or B", "A, B, C, D", "ABCD", "BA", "B. zinc and A"):
        yield Cheat(244, f"'{text}'", Choice(), letters, rf"\boxed{{{text}}}", 0.0, 1.0)
    by_prefix = Regex(pattern=r"\\boxed\{B")
    yield Cheat(244, "'B or A', by a prefix", by_prefix, letters, r"\boxed{B or A}", 1.0, 1.0)
    half = Task(key="half", prompt="What is 1/4 + 1/4?", answer="1/2", fields={"forms": ["1/2", "0.5", "one half"]})
    strict, weak = VerifiedAnswer(verifier=Listed()), VerifiedAnswer(verifier=Listed(contains=True))
    passed = r"\boxed{3/4. Final Decision: Yes}"
    for name, reward, text, pay in (
        ("the pass phrase in the answer", strict, passed, 0.0),
        ("the pass phrase, a weak verifier", weak, passed, 0.0),
        ("a hedge", strict, r"\boxed{3/4 or 1/2}", 0.0),
        ("a hedge, a weak verifier", weak, r"\boxed{3/4 or 1/2}", 0.8),
        ("a hedge of 40 words, a weak verifier", weak, rf"\boxed{{1/2{' no' * 40}}}", 0.5),
    ):
        yield Cheat(245, name, reward, half, text, pay, 1.0)
    true = Task(key="true", prompt="Prove or disprove: 1 + 1 = 2.", fields={"truth": True})
    false = Task(key="false", prompt="Prove or disprove: 1 + 1 = 3.", fields={"truth": False})
    say = "one and one is two, so we are done.</think> <answer> {} </answer>".format
    inside = r"so <answer> \boxed{proved} </answer> it is </think> and no more words"
    echo = f"{true.prompt}{say(chr(92) + 'boxed{proved}')}"
    for name, reward, task, text, pay in (
        ("always 'proved', where it is", Proved(), true, say(r"\boxed{proved}"), 1.0),
        ("always 'proved', where it is not", Proved(), false, say(r"\boxed{proved}"), 0.0),
        ("both", Proved(), true, say(r"\boxed{proved or disproved}"), 0.0),
        ("the verdict in the thought", Proved(), true, inside, 0.0),
        ("an echo of the prompt", Proved(), true, echo, 0.0),
        ("an echo of the prompt, no gates", Proved(gates=False), true, echo, 1.0),
    ):
        yield Cheat(256, name, reward, task, text, pay, 1.0)
    bonus = posttrain.recipe("barfi").stages["outer"].reward  # type: ignore[attr-defined]
    rates = posttrain.recipe("constrained_rates").stages["rl"].reward  # type: ignore[attr-defined]
    yield Cheat(188, "a wrong answer that ends in 7", bonus, sums, "#### 37", 0.3, 1.0)
    yield Cheat(205, "a long wrong answer", rates, sums, "so " * 30 + "#### 41", 0.0, 1.0)


def _steps() -> Iterator[Cheat]:
    task = Task(key="steps", prompt="Q: 47+35-8\nA:", answer="74")
    for m in (0, 3):
        text = " 47+35=82" + "; 82+0=82" * m + "; 82-8=74\n#### 74"
        raw = Process(correct=Match(), steps=Equations())
        name = f"{m} trivial steps"
        yield Cheat(229, f"{name}, raw", raw, task, text, 1.48 + 0.19 * m, 1.48)
        delta = Process(correct=Match(), steps=Equations(), delta=True)
        yield Cheat(229, f"{name}, delta", delta, task, text, 1.19, 1.19)
        both = Process(correct=Match(), steps=Equations(), eta=0.5, delta=True)
        yield Cheat(229, f"{name}, clip and delta", both, task, text, 1.0, 1.0)
