"""A fuzzing session: what it keeps, and that one that was killed goes on as if it had not been."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from posttrain.errors import UserError
from posttrain.grading.line_coverage import target_of
from posttrain.runs.fuzzing import Session, State, found, fuzz, prompt_of, read_seeds
from posttrain.runs.input_edits import edited, parsed
from posttrain.sandbox import open_pool

SOURCE = """def f(a, b):
    if a == 12:
        if b >= 9:
            return 1 // (b - 10)
        while b < 0:
            b -= 1
    return 0
"""


async def write(line: int, batch: int, number: int) -> Sequence[str]:
    rng = Random(f"{line}:{batch}:{number}")
    return [f" {rng.choice((11, 12))} {rng.choice((-3, 8, 9, 10))}\nmore", "no input", "12,-1", *["1 2"] * 5]


def session(folder: Path, **changes: Any) -> Session:
    target = target_of(SOURCE, "f")
    own = Session(target=target, folder=folder, pool=open_pool(), form="literals", write=write, settings={"seed": 0})
    return replace(own, **changes)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_crashes_and_hangs_are_apart_and_inputs_of_new_lines_are_the_corpus(tmp_path: Path) -> None:
    own = session(tmp_path / "out", ticks=100)
    state = fuzz(own, 100, lambda _: None)
    result = found(own, state)
    assert result["tried"] == 100 and result["covered"] == result["lines"] == 6 and result["not_covered"] == []
    assert [(one["end"], one["line"], one["input"]) for one in result["crashes"]] == [
        ("ZeroDivisionError", 4, "12, 10")
    ]
    assert [(one["end"], one["line"]) for one in result["hangs"]] == [("hung", 6)] and result["refused"] > 0
    assert Path(result["crashes"][0]["file"]).read_text() == "12, 10"
    queue = sorted(path.name for path in (tmp_path / "out/default/queue").iterdir())
    assert queue[0] == "id:000000,execs:0,op:seed,+cov" and all("+cov" in name for name in queue)
    assert "execs_done        : 100\n" in (tmp_path / "out/default/fuzzer_stats").read_text()
    assert read_seeds(tmp_path / "out").keys() == set(queue)
    again = fuzz(replace(own, folder=tmp_path / "less", expected=frozenset({"ZeroDivisionError"})), 100, lambda _: None)
    assert not again.saved["crashes"] and again.saved["hangs"]


@pytest.mark.slow
def test_a_session_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole = session(tmp_path / "whole")
    fuzz(whole, 150, lambda _: None)

    class Killed(Exception):
        pass

    def kill(state: State) -> None:
        if state.tried > 60:
            raise Killed

    cut = replace(whole, folder=tmp_path / "cut")
    with pytest.raises(Killed):
        fuzz(cut, 150, kill)
    journal = tmp_path / "cut/default/posttrain.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"tried": 32, "ref')  # in the middle of an append
    next((tmp_path / "cut/default/queue").iterdir()).unlink()  # and before a file was written
    fuzz(cut, 150, lambda _: None)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    shorter = replace(whole, folder=tmp_path / "shorter")
    fuzz(shorter, 97, lambda _: None)
    fuzz(shorter, 150, lambda _: None)
    assert fuzz(shorter, 10, lambda _: None).tried == 150, "nothing is tried again"
    with pytest.raises(UserError, match="a session with another seed; give another --out"):
        fuzz(replace(cut, settings={"seed": 1}), 150, lambda _: None)


def test_seeds_and_prompts(tmp_path: Path) -> None:
    target = target_of(SOURCE, "f")
    assert prompt_of(target, 4, "f({parameters}) {guards}\n:") == "f(a,b) a==12 b>=9\n:"
    with pytest.raises(UserError, match="no folder"):
        read_seeds(tmp_path / "none")
    with pytest.raises(UserError, match="has 0 files"):
        read_seeds(tmp_path)
    own = session(tmp_path / "out", write=None, seeds={"a": b"12, 10", "b": b"x"})
    state = fuzz(own, 2, lambda _: None)
    assert [one["input"] for one in state.saved["queue"]] == ["12, 10"] and state.refused == 1


def test_edits_are_bounded_and_use_the_constants_of_the_program() -> None:
    rng = Random(1)
    numbers = [edited(b"1, 'a'", "literals", rng, (777,)) for _ in range(300)]
    assert any(b"777" in own for own in numbers) and len(set(numbers)) > 50
    texts = [edited(b"ab" * 1999, "str", rng, ("magic", "x" * 99)) for _ in range(200)]
    assert all(len(own) <= 4000 for own in texts) and any(b"magic" in own for own in texts)
    assert not any(b"xxx" in own for own in texts)


@pytest.mark.parametrize("start", [b"12, 10, 'a', [1]", b"0, 0, '', []"])
def test_edits_keep_the_types_that_parameters_are_annotated_with(start: bytes) -> None:
    """`12, 0J, 0` is no input of whole numbers, and its TypeError no crash of the function."""
    source = "def f(a: int, b: float, c: str, d: list[int], e=0):\n    return a"
    kinds = target_of(source, "f").kinds
    assert kinds == ("int", "float", "str", "list", "")
    rng, content, seen = Random(27), start, set()
    for _ in range(1000):
        content = edited(content, "literals", rng, (0.5, "magic"), kinds)
        given = parsed("literals", content, kinds)
        assert given is not None
        assert all(isinstance(own, kind) for own, kind in zip(given, (int, int | float, str, list), strict=False))
        seen.add(content)
        content = content if len(content) < 60 else start
    assert len(seen) > 300


def test_an_input_of_another_type_than_is_annotated_is_refused(tmp_path: Path) -> None:
    target = target_of(SOURCE.replace("(a, b)", "(a: int, b: int)"), "f")
    state = fuzz(session(tmp_path, target=target, write=None, seeds={"a": b"12, 0J", "b": b"12, 9"}), 2, lambda _: None)
    assert state.refused == 1 and not state.saved["crashes"]
    first = target_of("def f(a: str, b: bool): return a", "f")
    state = fuzz(session(tmp_path / "first", target=first, write=None), 1, lambda _: None)
    assert [one["input"] for one in state.saved["queue"]] == ["'', False"] and state.refused == 0
