"""Audits of a user's own files by rewards that demand a layout: the reference is written in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.audit.auditing import Settings, audit, golds_of
from posttrain.cli import main
from posttrain.components.rewards import Reward
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.tasks.repairs import Repairs
from posttrain.types import Task
from tests.components.rewards.judging import judge


def calling(asked: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A row of OpenAI's messages and tools."""
    made = [
        {"id": str(n), "type": "function", "function": {"name": name, "arguments": json.dumps(own)}}
        for n, (name, own) in enumerate(calls)
    ]
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name, _ in calls]
    spoken = [{"role": "user", "content": asked}, {"role": "assistant", "content": None, "tool_calls": made}]
    return {"messages": spoken, "tools": tools}


ROWS = [
    calling("What is the weather in Oslo?", ("weather", {"city": "Oslo"})),
    calling("Cook at heat 3 for 7 minutes.", ("cook", {"heat": 3, "time": 7})),
    calling("Turn the lamps 1 and 2 on.", ("lamp", {"id": 1}), ("lamp", {"id": 2})),
]
PATCHES = [
    {"issue": "Two.", "files": {"a.py": "x=1\n"}, "oracle": {"a.py": "x=2\n"}},
    {"issue": "A file.", "files": {"a.py": "x=1\n"}, "oracle": {"b/c.py": "y=1\n\nz=2"}},
]


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes rows into a file."""

    def written(rows: list[dict[str, Any]]) -> str:
        file = tmp_path / "rows.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(file)

    return written


@pytest.mark.slow
def test_calls_of_openai_have_no_findings(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "tool_calls", f"tasks={write(ROWS)}", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["findings"] == [] and report["kinds"]["gold"]["rewarded"] == 6 == report["kinds"]["gold"]["probes"]
    assert report["kinds"]["gold"]["mean"] == 4.0 and report["kinds"]["of_calls"]["rewarded"] == 0


@pytest.mark.parametrize(
    ("answer", "written", "compared"),
    [
        (
            "cook(heat=3)",
            '<think>so</think>\n<tool_call>\n{"name": "cook", "parameters": {"heat": 3}}\n</tool_call>',
            True,
        ),
        ("Hello!", "<think>so</think>\n<response>Hello!</response>", False),
        (
            '<tool_call>{"name": "f", "parameters": {}}</tool_call><response>Done.</response>',
            '<think>so</think>\n<tool_call>\n{"name": "f", "parameters": {}}\n</tool_call>\n<response>so</response>',
            True,
        ),
        ("<think>why</think>", "<think>why</think>", False),
    ],
)
def test_every_layout_of_calls(answer: str, written: str, compared: bool) -> None:
    task = Task(key="k", prompt="p", answer=answer)
    gold = ToolCalls().gold(task)
    assert gold is not None and (gold.form.replace("{answer}", gold.answer), gold.compared) == (written, compared)
    assert judge(ToolCalls(), written, task).value == (4.0 if compared else 1.0)
    assert ToolCalls().gold(Task(key="k", prompt="p", answer="<tool_call>{</tool_call>")) is None


def test_responses_are_not_compared() -> None:
    task = Task(key="k", prompt="Please greet everybody who is here.", answer="Hello!", fields={"tools": []})
    assert audit(ToolCalls(), [task]).clean


def test_patches_are_written_as_edits(write: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "patch_similarity", f"tasks={write(PATCHES)}", "--json"]) == 0
    kinds = json.loads(capfd.readouterr().out)["kinds"]
    assert kinds["gold"]["mean"] == 1.0 and kinds["gold"]["rewarded"] == kinds["gold"]["probes"] == 4


def test_generated_repairs_have_the_maximum() -> None:
    tasks = Repairs(size=3, level=3).load()
    kinds = audit(PatchSimilarity(), tasks, Settings(skip=["hanging", "huge"])).kinds
    assert (kinds["gold"]["mean"], kinds["gold"]["rewarded"], kinds["gold"]["probes"]) == (1.0, 9, 9)


def test_whose_layout_is_used() -> None:
    task = Task(key="k", prompt="p", answer="f(a=1)")
    gated: Reward = Gated(reward=ToolCalls(), gate={"short": Match()})
    assert golds_of(gated, [task], "{answer}")[0][1] == ToolCalls().gold(task)
    [(_, own)] = golds_of(ToolCalls(), [task], "<x>{answer}</x>")
    assert (own.form, own.answer) == ("<x>{answer}</x>", "f(a=1)")
    assert golds_of(ToolCalls(), [Task(key="k", prompt="p")], "{answer}") == []
