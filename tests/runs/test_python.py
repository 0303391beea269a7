"""The Python interface: a run is three lines, takes plain objects, and leaves objects behind."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import posttrain
from posttrain.errors import UserError
from posttrain.recipes.overrides import override
from posttrain.runs.results import Table

ROWS = [{"prompt": f"Q: {a}+{b}\nA:", "answer": str(a + b)} for a in range(2, 12) for b in (1, 5)]
SMALL = {"prompts": 2, "rollout.n": 2, "rollout.sampling.max_tokens": 8, "evaluation.holdout": 4, "threads": 1}
BONUS = 0.5


def score(completion: str, task: Any) -> float:
    """At the top of an importable file: another process finds it by its name."""
    return float(task.answer in completion) + BONUS


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> posttrain.Result:
    """A run of lists and a function that closes over a value."""
    bonus = 0.25

    def rewarded(completion: str, task: Any) -> float:
        return float(task.answer in completion) + bonus

    threads = torch.get_num_threads()
    out = tmp_path_factory.mktemp("runs")
    result = posttrain.run("grpo", tasks=ROWS, reward=rewarded, steps=2, changes=SMALL, out=out, quiet=True)
    torch.set_num_threads(threads)
    return result


def test_importing_it_loads_nothing() -> None:
    code = (
        "import posttrain, sys; print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'pydantic', 'numpy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
    assert {"run", "resume", "evaluate", "sample", "compare", "recipe", "Recipe"} <= set(dir(posttrain))
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        posttrain.rum  # noqa: B018


@pytest.mark.slow
def test_a_run_of_lists_and_a_closure_leaves_its_numbers(finished: posttrain.Result) -> None:
    assert finished.summary["steps"] == 2 and "accuracy_after" in finished.summary
    assert len(finished.metrics) == 2 and finished.metrics["step"] == [1, 2]
    assert len(finished.rollouts) == 2 * 2 * 2
    assert {row["reward"] for row in finished.rollouts} <= {0.25, 1.25}, "what the closure holds came along"
    assert finished.evaluations["name"] == ["before", "rl"]
    assert finished.model is not None and (finished.model / "model.safetensors").is_file()
    assert finished.report is not None and repr(finished).startswith("grpo: 2 steps")


def test_its_recipe_states_everything(finished: posttrain.Result) -> None:
    again = posttrain.recipe(finished.folder)
    assert again.tasks.load()[0].prompt == ROWS[0]["prompt"]
    [function] = (finished.folder.parent / "functions").glob("*.py")
    assert "bonus = 0.25" in function.read_text()


def test_curves_are_a_picture(finished: posttrain.Result, tmp_path: Path) -> None:
    curves = finished.curves
    assert "Reward" in curves.svg and curves.svg["Reward"].lstrip().startswith("<svg")
    page = curves.save(tmp_path / "curves.html").read_text()
    assert page.count("<svg") == len(curves.svg) and "<style>" in curves._repr_html_()


@pytest.mark.slow
def test_a_finished_run_can_be_read_again_and_sampled_and_evaluated(finished: posttrain.Result) -> None:
    assert posttrain.Result(finished.folder).metrics.rows == finished.metrics.rows
    completions = posttrain.sample(finished.folder, "Q: 2+3\nA:", 3, max_tokens=4, seed=1)
    assert len(completions) == 3 and all(len(ids) <= 4 for ids in completions["token_ids"])
    assert completions["text"] == posttrain.sample(finished.folder, "Q: 2+3\nA:", 3, max_tokens=4, seed=1)["text"]
    measured = posttrain.evaluate(finished.folder, tasks=ROWS[:6], verifier="match", changes={"threads": 1})
    assert measured["tasks"] == 6 and 0 <= measured["accuracy"] <= 1


def test_a_recipe_is_changed_by_words_paths_and_components() -> None:
    from posttrain.components.objectives.ppo_clip import PPOClip

    changed = posttrain.recipe(
        "dr_grpo", steps=7, lr=1e-5, changes={"rollout.n": 3, "objective": PPOClip(clip_high=0.3)}
    )
    same = override(posttrain.recipe("dr_grpo"), ["steps=7", "lr=1e-5", "rollout.n=3", "objective.clip_high=0.3"])
    assert changed == same
    assert posttrain.recipe(lambda: changed) is changed
    assert posttrain.recipe("gigpo", setting="arithmetic").tasks == posttrain.recipe("arithmetic").tasks


def test_mistakes_are_sentences() -> None:
    with pytest.raises(UserError, match="did you mean 'steps'"):
        posttrain.recipe("grpo", stesp=3)
    with pytest.raises(UserError, match="a recipe is a name, a path, a Recipe or a function"):
        posttrain.recipe(3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="tasks holds no rows"):
        posttrain.recipe("grpo", tasks=[])
    with pytest.raises(UserError, match="tasks is a int"):
        posttrain.recipe("grpo", tasks=3)
    with pytest.raises(UserError, match=r"__main__ is another module"):
        posttrain.recipe("grpo", reward="__main__:score")


def test_a_function_of_a_file_is_found_by_its_name() -> None:
    path = posttrain.recipe("grpo", reward=score).stages["rl"].reward.path  # type: ignore[attr-defined]
    assert path.endswith(":score") and not Path("runs").exists()


def test_several_functions_are_summed() -> None:
    def short(completion: str) -> float:
        return float(len(completion) < 4)

    def brief(completion: str) -> float:
        return float(len(completion) < 9)

    reward = posttrain.recipe("grpo", reward=[short, score, "match"]).stages["rl"].reward  # type: ignore[attr-defined]
    assert list(reward.parts) == ["short", "score", "match"] and reward.correct is None
    both = posttrain.recipe("grpo", reward=(short, brief)).stages["rl"].reward  # type: ignore[attr-defined]
    assert list(both.parts) == ["short", "brief"]


@pytest.mark.slow
def test_a_function_that_cannot_be_written_runs_here_and_is_required_again(
    finished: posttrain.Result, tmp_path: Path
) -> None:
    calls: list[str] = []

    def counted(completion: str, task: Any) -> float:
        calls.append(completion)
        return float(lock is not None)

    import threading

    lock = threading.Lock()
    with pytest.warns(UserWarning, match="runs in this process"):
        result = posttrain.run("grpo", tasks=ROWS, reward=counted, steps=1, changes=SMALL, out=tmp_path, quiet=True)
    assert calls
    code = f"import posttrain; posttrain.resume({str(result.folder)!r}, quiet=True)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Pass it again in Python: posttrain.resume(RUN, reward=counted)" in done.stderr
    again = posttrain.resume(result.folder, reward=counted, quiet=True)
    assert again.metrics.rows == result.metrics.rows


def test_tables_convert_and_print() -> None:
    table = Table([{"a": 1, "b": "x" * 60}, {"a": 2.5, "c": None}])
    assert table.columns == ["a", "b", "c"] and table["a"] == [1, 2.5] and table[1]["b"] is None
    assert "2 rows, 3 columns" in repr(table) and "…" in repr(table) and "<td>2.5</td>" in table._repr_html_()
    with pytest.raises(KeyError, match="no column 'd'; there are: a, b, c"):
        table["d"]
    pandas = pytest.importorskip("pandas")
    assert isinstance(table.pandas(), pandas.DataFrame) and list(table.pandas().columns) == table.columns


def test_no_warning_for_what_can_be_written_down() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posttrain.recipe("grpo", reward=lambda completion, task: float(len(completion) < 9))


NOTEBOOK = """
import posttrain
rows = [{"prompt": f"Q: {a}+1\\nA:", "answer": str(a + 1)} for a in range(2, 20)]
def score(completion, task):
    return float(task.answer in completion)
small = {"prompts": 2, "rollout.n": 2, "rollout.sampling.max_tokens": 8, "evaluation.holdout": 4, "threads": 1}
result = posttrain.run("grpo", tasks=rows, reward=score, steps=2, changes=small)
"""


START = """
from pathlib import Path
from posttrain.recipes.files import find_recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
Path("mine.py").write_text("def score(completion, task):\\n    return float(task.answer in completion)\\n")
words = [f"{path}={value}" for path, value in small.items()]
recipe = find_recipe("grpo", [*words, "steps=2", "tasks.size=60", "reward=mine.py:score"])
folder, summary = start(recipe, Path("runs"), LiveView())
summary["steps"], find_recipe(str(folder)).stages["rl"].reward.path
"""


@pytest.mark.slow
def test_a_notebook_runs_and_shows_progress_and_curves(tmp_path: Path) -> None:
    """An event loop runs there already, and what a cell defines is in no file."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    cells = [
        NOTEBOOK,
        START,
        "result.curves",
        "result.metrics",
        "import asyncio; asyncio.get_running_loop().is_running()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    done = nbclient.NotebookClient(
        notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert done.cells[1].outputs[-1].data["text/plain"] == "(2, 'mine.py:score')"
    del done.cells[1]
    outputs = done.cells[0].outputs
    shown = "".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in outputs)
    assert "grpo: 2 steps" in shown and "held-out (rl)" in shown
    assert "<svg" in done.cells[1].outputs[0].data["text/html"]
    assert "2 rows" in done.cells[2].outputs[0].data["text/plain"]
    assert done.cells[3].outputs[0].data["text/plain"] == "True"
