from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from posttrain.datasets.holdout import exclude, holdout
from posttrain.datasets.keys import keyed, problem
from posttrain.types import Message, Task


def task(prompt: str, answer: str = "a", key: str = "k") -> Task:
    return Task(key=key, prompt=prompt, answer=answer)


def chat(*texts: str, system: str | None = None) -> tuple[Message, ...]:
    opening = () if system is None else (Message(role="system", content=system),)
    roles = ("user", "assistant")
    return (*opening, *(Message(role=roles[i % 2], content=text) for i, text in enumerate(texts)))


TASKS = [task(f"problem {n}", key=str(n)) for n in range(100)]
prompts = st.lists(st.text(max_size=3), max_size=30)


@given(prompts, st.integers(0, 40), st.integers(0, 5))
def test_nothing_is_lost_and_nothing_leaks(texts: list[str], count: int, seed: int) -> None:
    tasks = [task(text, key=str(n)) for n, text in enumerate(texts)]
    train, held_out = holdout(tasks, count, seed)
    assert sorted([*train, *held_out], key=lambda t: int(t.key)) == tasks
    assert {problem(t) for t in train}.isdisjoint(problem(t) for t in held_out)
    distinct = len({problem(t) for t in tasks})
    assert len({problem(t) for t in held_out}) == min(count, distinct // 2)


@given(st.permutations(TASKS), st.integers(0, 3))
def test_the_order_does_not_matter(shuffled: list[Task], seed: int) -> None:
    assert {t.key for t in holdout(shuffled, 20, seed)[1]} == {t.key for t in holdout(TASKS, 20, seed)[1]}


def test_order_is_kept_on_both_sides() -> None:
    for side in holdout(TASKS, 30, 0):
        assert [int(t.key) for t in side] == sorted(int(t.key) for t in side)


def test_seeds_choose_differently_and_the_same_seed_alike() -> None:
    chosen = [frozenset(t.key for t in holdout(TASKS, 20, seed)[1]) for seed in (0, 1, 0)]
    assert chosen[0] == chosen[2] != chosen[1]
    assert all(len(keys) == 20 for keys in chosen)


def test_another_row_moves_at_most_one_problem() -> None:
    before = {t.key for t in holdout(TASKS, 20, 0)[1]}
    for n in range(200, 240):
        after = {t.key for t in holdout([*TASKS, task(f"problem {n}", key=str(n))], 20, 0)[1]}
        assert len(before - after) <= 1


def test_one_problem_with_several_answers_stays_together() -> None:
    tasks = [task(f"problem {n}", answer=a, key=f"{n}{a}") for n, a in product(range(20), "xyz")]
    train, held_out = holdout(tasks, 5, 0)
    assert len(held_out) == 15 and len(train) == 45


def test_wrapping_does_not_hide_a_problem() -> None:
    same = [
        task("2+2?"),
        task("  2+2?\n"),
        Task(key="k", prompt=chat("2+2?")),
        Task(key="k", prompt=chat("2+2? ", system="You add.")),
    ]
    assert len({problem(t) for t in same}) == 1
    other = [Task(key="k", prompt=chat("2+2?", "4", "sure?")), Task(key="k", prompt=chat("2+2?", "5", "sure?"))]
    assert len({problem(t) for t in [*same, *other]}) == 3
    assert problem(Task(key="k", prompt=chat(system="a"))) != problem(Task(key="k", prompt=chat(system="b")))


def test_plain_text_is_known_by_itself() -> None:
    texts = [Task(key=str(n), prompt="", demonstrations=(f"text {n}",)) for n in range(10)]
    assert len(holdout(texts, 4, 0)[1]) == 4
    assert len({t.key for t in keyed(texts)}) == 10
    assert not any("-" in t.key for t in keyed(texts))


def test_exclude_counts_what_it_removes() -> None:
    train = [task("a", key="1"), task("b", key="2"), task("b", answer="other", key="3"), task("c", key="4")]
    test = [Task(key="t", prompt=chat("b", system="Be brief."))]
    kept, removed = exclude(train, test)
    assert [t.key for t in kept] == ["1", "4"] and removed == 2
    assert exclude(train, []) == (tuple(train), 0)


def test_keys_by_content_do_not_depend_on_order() -> None:
    tasks = [task(f"problem {n}") for n in range(20)]
    forward = {t.prompt: t.key for t in keyed(tasks)}
    assert {t.prompt: t.key for t in keyed(reversed(tasks))} == forward
    assert all(len(key) >= 12 and int(key, 16) >= 0 for key in forward.values())


def test_repeated_tasks_are_numbered_and_ids_must_differ() -> None:
    first, second, third, other = (t.key for t in keyed([task("p"), task("p"), task("p"), task("p", answer="b")]))
    assert (second, third) == (f"{first}-2", f"{first}-3") and other != first
    assert [t.key for t in keyed([task("p"), task("q")], ["x", "y"])] == ["x", "y"]
    assert keyed([task("p"), task("q")], ["x", "x"]) == keyed([task("p"), task("q")])
    assert keyed([task("p"), task("q")], ["x", None]) == keyed([task("p"), task("q")])


def test_the_key_is_the_documented_hash() -> None:
    import hashlib

    canonical = '["caf\\u00e9","4"]'
    expected = hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()
    assert keyed([task("café", answer="4")])[0].key == expected
