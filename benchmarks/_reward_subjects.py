"""The rewards that `benchmarks.rewards` measures: tasks, texts by which each could be deceived, and an oracle."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import posttrain
from benchmarks import _reward_oracles as oracles
from benchmarks._kernel_cases import KernelCases
from benchmarks._suite_cases import suites_of
from posttrain.components.rewards import Reward
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.kernel import Kernel
from posttrain.components.rewards.next_action import NextAction
from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.rewards.proved import Proved
from posttrain.components.rewards.refactored import Refactored
from posttrain.components.rewards.reranked import Reranked
from posttrain.components.rewards.suite import Suite
from posttrain.components.rewards.text_similarity import TextSimilarity
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.rewards.translated import Translated
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.ciphers import Ciphers
from posttrain.components.tasks.code_lines import CodeLines
from posttrain.components.tasks.guards import Guards
from posttrain.components.tasks.identities import Identities
from posttrain.components.tasks.kernels import Kernels
from posttrain.components.tasks.passages import Passages
from posttrain.components.tasks.recorded_shopping import RecordedShopping
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.components.tasks.repairs import Repairs
from posttrain.components.tasks.repairs import written as edit
from posttrain.components.tasks.suites import Suites
from posttrain.components.tasks.tool_requests import ToolRequests
from posttrain.methods.rewards.autotriton import RULE
from posttrain.sandbox import find_tier
from posttrain.types import Task

CASES = 1000
PROGRAMS = 84
"""Tasks with kernels; twelve labelled texts of each."""
Texts = Callable[[Task], Mapping[str, str]]
Drawn = Callable[[Task], Iterable[tuple[bool, str]]]


def _none(task: Task) -> Mapping[str, str]:
    return {}


def _patches(task: Task) -> Mapping[str, str]:
    """Edits by which similarity is deceived."""
    (path, fixed), *_ = task.fields["oracle"].items()
    lines = zip(task.fields["files"][path].split("\n"), fixed.split("\n"), strict=True)
    old, new = next((a, b) for a, b in lines if a != b)
    there_and_back = edit(path, old, "pass").partition("</solution>")[0] + edit(path, "pass", old).partition("\n")[2]
    return {
        "a comment in the right line": edit(path, old, f"{old}  # fixed"),
        "nonsense in the right line": edit(path, old, "pass  # qwertz"),
        "edits that undo each other": there_and_back,
        "a path outside": edit(path, old, new).partition("</solution>")[0] + edit("../x", "", "x").partition("\n")[2],
    }


def _functions(task: Task) -> Mapping[str, str]:
    """Texts by which checks are deceived."""
    source, answer = task.fields["source"], task.answer or ""
    return {
        "a copy": source,
        "a function that nothing calls": f"{source}\ndef g(a):\n return a\n",
        "a changed meaning": answer.replace("\n\ndef", "+1\n\ndef"),
    }


@dataclass(frozen=True)
class Subject:
    """A reward with its tasks."""

    reward: Reward
    tasks: Tasks
    cheats: Texts = _none
    size: int = CASES // 5
    """Tasks that are scored; five texts of each."""
    drawn: Drawn | None = None
    """More texts of a task, each with whether it is right; those of `WRONG` count only with `also`."""
    also: bool = False
    oracle: oracles.Oracle = oracles.equal_texts
    """Decides a second time whether a text is right."""
    finds: oracles.Oracle | None = None
    """Another one for finds, where running one takes long."""


def _of_recipe(name: str, oracle: oracles.Oracle, cheats: Texts = _none, **changes: Any) -> Subject:
    """The reward of a recipe, with its tasks."""
    recipe = posttrain.recipe(name)
    stage = [own for own in recipe.stages.values() if hasattr(own, "reward")][-1]
    reward = replace(stage.reward, **changes) if changes else stage.reward
    return Subject(reward, recipe.tasks, cheats, oracle=oracle)


def _inputs(task: Task) -> Mapping[str, str]:
    """Inputs that end or deceive the tracer."""
    count = task.fields["source"].partition(")")[0].count(",") + 1
    return {
        "an exit": ", ".join(["__import__('os')._exit(0)"] * count),
        "the tracer's mark": ", ".join(["_posttrain_reach()"] * count),
        "a forged log": '[0, ["value", ["str", "[\\"returned\\", true, []]"]]]',
    }


def subjects() -> dict[str, Subject]:
    """The rewards, by name."""
    tier = find_tier().tier
    toy, triton = (Kernel(dialect=name, weakest=tier) for name in ("toy", "triton"))
    in_toy, in_triton = (Kernels(size=PROGRAMS, dialect=name) for name in ("toy", "triton"))
    by_recipe = {
        "match (39, 91)": ("mrt", oracles.last_number),
        "levels (143)": ("timehc_rl", oracles.last_words),
        "raised (154)": ("pattern_reward", oracles.last_number),
        "process (229)": ("clip_delta", oracles.last_number),
        "choice (244)": ("alphamed", oracles.last_words),
        "verified_answer (245)": ("general_reasoner", oracles.last_words),
        "constraints (287)": ("cgpo", oracles.kept_limits),
        "sum (188)": ("barfi", oracles.last_number),
        "sum (205)": ("constrained_rates", oracles.last_number),
    }
    return {
        **{name: _of_recipe(recipe, oracle) for name, (recipe, oracle) in by_recipe.items()},
        "segments (216)": replace(_of_recipe("fine_grained_rlhf", oracles.without_word), drawn=_sentences),
        "next_action (175)": Subject(NextAction(), RecordedShopping(size=200, right=1.0), oracle=oracles.same_action),
        "proved (256)": Subject(Proved(), Identities(size=200), oracle=oracles.last_verdict),
        "reranked (162)": Subject(Reranked(), Passages(size=200, noise=0.0), oracle=oracles.top_of_order),
        "text_similarity (100)": Subject(TextSimilarity(), CodeLines(size=200)),
        "tool_calls (170)": Subject(ToolCalls(), ToolRequests(size=200, right=1.0), oracle=oracles.same_calls),
        "translated (252)": Subject(Translated(), Ciphers(size=200)),
        "patch_similarity (17)": Subject(PatchSimilarity(), Repairs(size=200, level=2), _patches),
        "patch_similarity, run": Subject(
            PatchSimilarity(execution=True, weakest=tier), Repairs(size=200, level=2), _patches
        ),
        "refactored (93)": Subject(Refactored(), Refactorings(size=200), _functions, oracle=oracles.same_function),
        "refactored, run": Subject(
            Refactored(execution=True, weakest=tier),
            Refactorings(size=200),
            _functions,
            size=125,
            oracle=oracles.same_function,
        ),
        "branch_distance (124)": Subject(
            replace(posttrain.recipe("r1_fuzz").stages["rl"].reward, weakest=tier),  # type: ignore[attr-defined]
            Guards(size=60, slips=0.0),
            _inputs,
            size=130,
            oracle=oracles.reaches,
        ),
        "suite (286)": Subject(
            Suite(weakest=tier), Suites(size=60, inputs=500), size=60, drawn=suites_of, oracle=oracles.kills_all
        ),
        "kernel (96), toy": Subject(
            Gated(reward=toy, gate={"uses": RULE}),
            in_toy,
            size=PROGRAMS,
            drawn=KernelCases(in_toy.load()),
            also=True,
            oracle=oracles.same_values,
        ),
        "kernel (96), Triton": Subject(
            Gated(reward=triton, gate={"uses": RULE}),
            in_triton,
            size=PROGRAMS,
            drawn=KernelCases(in_triton.load()),
            also=True,
            oracle=oracles.equal_texts,
            finds=oracles.other_inputs(triton),
        ),
    }


def _sentences(task: Task) -> Iterable[tuple[bool, str]]:
    """Texts with and without the unwanted word, in each sentence and alone."""
    plain = task.demonstrations[0].replace(" darn", "")
    words = plain.split()
    yield from ((True, plain), (True, plain.split(".")[0] + "."))
    yield from (
        (False, f"{plain} darn."),
        (False, f"darn {plain}"),
        (False, " ".join([*words[:2], "darn", *words[2:]])),
    )
