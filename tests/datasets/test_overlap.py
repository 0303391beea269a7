"""Decontamination by n-grams and by common subsequences, on sentences whose overlaps are counted by hand."""

from random import Random

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.datasets.overlap import Decontamination, longest_common_subsequence, tokens_of
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.overrides import override
from posttrain.runs.problems import Problems
from posttrain.types import Message, Task

TEST = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
"""16 tokens."""


def task(prompt: str) -> Task:
    return Task(key=prompt, prompt=prompt)


def left(rule: Decontamination, *prompts: str, tested: str = TEST) -> list[str]:
    kept, removed = rule.clean([task(prompt) for prompt in prompts], [task(tested)])
    assert removed == len(prompts) - len(kept)
    return [str(kept_task.prompt) for kept_task in kept]


def words(first: int, last: int) -> str:
    return " ".join(TEST.split()[first - 1 : last])


def test_a_planted_row_is_dropped_by_8_grams_over_half_of_the_test_prompt() -> None:
    """Eight common tokens are half of 16, which is not more; nine are."""
    nine, eight = f"Please say: {words(1, 9)}!", f"Please say: {words(1, 8)}, then stop"
    seven_twice = f"{words(1, 7)} and {words(9, 15)}"
    assert left(Decontamination(), nine, eight, seven_twice, "What is 6 * 7?") == [eight, seven_twice, "What is 6 * 7?"]


def test_two_n_grams_cover_tokens_once() -> None:
    """Tokens 1 to 8 and 5 to 12 cover 12 of 16."""
    assert left(Decontamination(), f"{words(1, 8)} / {words(5, 12)}") == []


def test_any_9_gram() -> None:
    rule = Decontamination(n=9, share=0.0)
    assert left(rule, words(4, 12), words(4, 11), words(4, 11) + " " + words(12, 13)) == [words(4, 11)]


def test_a_subsequence_of_13_tokens_and_six_tenths_of_the_shorter() -> None:
    rule = Decontamination(rule="subsequence", n=13, share=0.6)
    spread = " x ".join(TEST.split()[:13])
    long = " ".join(f"w{i}" for i in range(30))
    assert left(rule, spread) == []
    assert left(rule, words(1, 12)) == [words(1, 12)]
    test = f"{words(1, 13)} {long}"
    train = f"{words(1, 13)} {' '.join(f'v {i}' for i in range(30))}"
    assert left(rule, train, tested=test) == [train], "13 of 73 tokens are a common opening only"


def test_spacing_case_and_chat_make_no_difference() -> None:
    chat = Task(key="c", prompt=(Message(role="system", content="Hi"), Message(role="user", content=TEST.upper())))
    assert tokens_of(chat) == tokens_of(task(TEST.replace(" ", "\n ")))
    assert tokens_of(task("Don't add 47+35!")) == ("don", "'", "t", "add", "47", "+", "35", "!")


def test_short_prompts_resemble_none() -> None:
    assert left(Decontamination(), "one two", tested="one two") == ["one two"]
    assert left(Decontamination(), "", tested="") == [""]


def test_the_bits_are_the_table() -> None:
    """Against the quadratic table, on random sequences of few letters."""
    for seed in range(50):
        rng = Random(seed)
        a, b = ([rng.choice("abc") for _ in range(rng.randrange(0, 40))] for _ in range(2))
        table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
        assert longest_common_subsequence(a, b) == table[-1][-1]


def test_a_run_leaves_them_out_of_every_stage_and_reports_it() -> None:
    recipe = override(grpo(), ["tasks.terms=[3, 3]", "tasks.size=400", "tasks.digits=[1, 1]"])
    evaluation = Evaluation(tasks=Arithmetic(size=20, terms=(3, 3), digits=(1, 1), seed=1))
    plain = override(recipe, ["evaluation.tasks={kind: arithmetic, size: 20, terms: [3, 3], digits: [1, 1], seed: 1}"])
    assert plain.evaluation.tasks == evaluation.tasks
    clean = override(plain, ["evaluation.decontamination={n: 5, share: 0}"])
    before, after = Problems(plain), Problems(clean)
    stage = clean.stages["rl"]
    found = after.of(stage)
    assert 0 < len(found) < len(before.of(plain.stages["rl"]))
    tested = {tokens[i : i + 5] for t in after.held_out if (tokens := tokens_of(t)) for i in range(len(tokens) - 4)}
    assert not any(tokens_of(t)[i : i + 5] in tested for t in found for i in range(5))
    note = next(note for note in after.notes if "5 consecutive tokens" in note)
    assert note.startswith("stage rl: left out ")


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_bad_shares(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        Decontamination(share=share)
