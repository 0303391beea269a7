"""Benches that a model writes: repaired by messages, tried with mutants, and what is left of the tasks."""

import asyncio
import json
from typing import Any

import pytest

from posttrain.components.selections.written_benches import WrittenBenches
from posttrain.errors import UserError
from posttrain.grading.benches import mutants
from posttrain.types import Task
from tests.components.rewards.programs import tier_for

REFERENCE = "module top(input a, b, output y);\nassign y = a & b;\nendmodule"
TASK = Task(key="and", prompt="y is a and b", fields={"reference": REFERENCE})
GOOD = """```verilog
module bench;
reg a, b; wire y; integer i;
top dut(.a(a), .b(b), .y(y));
initial for (i = 0; i < 4; i = i + 1) begin {a, b} = i; #1 $display("%b%b %b", a, b, y); end
endmodule
```"""
WEAK = GOOD.replace("i < 4; i = i + 1", "i < 4; i = i + 3")
"""It tries 00 and 11 only, where and and or agree."""
BROKEN = GOOD.replace("wire y;", "wire y")
SILENT = GOOD.replace("$display", "$monitoroff; if (0) $display")


class Writer:
    """Gives these replies in order, and remembers the prompts."""

    def __init__(self, *replies: str) -> None:
        self.replies, self.prompts = list(replies), list[str]()

    def bind(self, *key: object) -> "Writer":
        return self

    async def write(self, prompt: str, n: int, sampling: object) -> list[str]:
        self.prompts.append(prompt)
        return [self.replies.pop(0)]


def made(*replies: str, **settings: Any) -> tuple[Any, Writer]:
    writer = Writer(*replies)
    selection = WrittenBenches(weakest=tier_for("iverilog", "vvp"), **settings)
    measured = asyncio.run(selection.measure([TASK], {"writer": writer}))  # type: ignore[dict-item]
    return selection.choose([TASK], json.loads(json.dumps(measured))), writer


def test_a_bench_that_distinguishes_a_mutant_is_kept() -> None:
    chosen, writer = made(GOOD)
    [task] = chosen.tasks
    assert task.fields["rows"] == ["00 0", "01 0", "10 0", "11 1"]
    assert task.fields["testbench"].startswith("module bench;") and task.fields["reference"] == REFERENCE
    assert task.fields["origin"] == [{"writer": "writer", "repairs": 0}]
    assert "a & b" not in writer.prompts[0] and "module top(input a, b, output y);" in writer.prompts[0]


@pytest.mark.slow
def test_a_bench_that_passes_a_mutant_goes() -> None:
    chosen, _ = made(WEAK)
    assert not chosen.tasks and "passes a faulty module" in chosen.summary


@pytest.mark.slow
def test_repairs_have_the_message_and_an_end() -> None:
    chosen, writer = made(BROKEN, SILENT, GOOD, repairs=2)
    assert [t.fields["origin"][0]["repairs"] for t in chosen.tasks] == [2]
    assert "error" in writer.prompts[1] and "prints no row" in writer.prompts[2]
    chosen, _ = made(BROKEN, BROKEN, repairs=1)
    assert not chosen.tasks and "does not run after 1 repairs" in chosen.summary


def test_mutants_by_hand() -> None:
    assert mutants(REFERENCE, 5) == [REFERENCE.replace("a & b", "~(a & b)"), REFERENCE.replace("&", "|")]
    assert mutants(REFERENCE, 1) == [REFERENCE.replace("a & b", "~(a & b)")]


def test_a_task_without_a_reference_is_refused() -> None:
    with pytest.raises(UserError, match="no field 'reference'"):
        asyncio.run(WrittenBenches().measure([Task(key="k", prompt="?")], {}))
