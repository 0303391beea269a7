"""A benchmark process of this package: ``python -m posttrain.runs.speed.worker``.

{"do": "start", "cases": {"NAME": {"measure": "sampling", ...}, ...}}    several cases, a turn names one
{"do": "start", "grpo": {...}}                                           a whole run, a turn is a step
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from posttrain.errors.temporary import temporary_folder
from posttrain.runs.garbage import as_usual, rarely_collected
from posttrain.runs.speed.children import Line, Steps
from posttrain.runs.speed.sizes import SIZES, Size
from posttrain.runs.speed.workloads import Workload, workload
from posttrain.runs.threads import wait_briefly

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy


class Case(Protocol):
    """A benchmark case, which is measured once per turn."""

    def turn(self) -> dict[str, Any]:
        """Do it once; ``seconds``, and what was done."""
        ...


def main() -> int:
    """Serve one parent, in a process as a command has it."""
    wait_briefly()
    with rarely_collected():
        return _serve(Line())


def _serve(line: Line) -> int:
    """Answer questions to the end. Returns the exit code."""
    try:
        question = line.next()
        if "grpo" in question:
            _serve_run(line, question["grpo"])
        else:
            _serve_cases(line, question["cases"])
    except Exception as error:
        import traceback

        traceback.print_exc()
        line.answer(error=f"{type(error).__name__}: {error}")
        return 1
    return 0


def _serve_cases(line: Line, wanted: Mapping[str, Mapping[str, Any]]) -> None:
    """Make the cases, and let them take turns until the parent has enough."""
    cases = {name: make_case(**spec) for name, spec in wanted.items()}
    as_usual()
    line.answer(ready=True)
    while (question := line.next())["do"] == "turn":
        line.answer(**cases[question["case"]].turn())
    line.goodbye()


def _serve_run(line: Line, spec: Mapping[str, Any]) -> None:
    """Runs GRPO, one step per turn."""
    from posttrain.runs.speed.runs import grpo, run_in_turns

    requests = workload(spec["workload"], spec["samples"])
    with temporary_folder("speed") as folder:
        recipe = grpo(folder, Path(spec["model"]), spec["dtype"], requests, spec["threads"], spec["device"])
        run_in_turns(recipe, folder, Steps(line))
    line.goodbye()


def make_case(*, measure: str, size: str, dtype: str, threads: int, device: str, **more: Any) -> Case:
    """One case; what `more` holds depends on what is measured."""
    import torch

    from posttrain.kernels.memory import keep_freed_memory

    torch.set_num_threads(threads)
    keep_freed_memory()
    place = torch.device(device)
    if measure == "limits":
        from posttrain.runs.speed._limits import Limits

        return Limits(SIZES[size], dtype, place, more["rows"], more["learning_rows"])
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.speed._cases import LearningCase, SamplingCase
    from posttrain.runs.speed.runs import recipe_for

    model, asked = Path(more["model"]), SIZES[size]
    if measure == "memory":
        return _memory_case(model, dtype, workload(more["workload"], more["samples"]), asked, place)
    policy = load_policy("policy", Model(source=str(model), dtype=dtype, trained=True), {}, place)  # type: ignore[arg-type]
    recipe = recipe_for(model, dtype, slots=more.get("slots", 256))
    make = SamplingCase if measure == "sampling" else LearningCase
    return make(policy, recipe, asked, workload(more["workload"], more["samples"]), place)


def _memory_case(model: Path, dtype: str, requests: Workload, size: Size, place: "torch.device") -> Case:
    """Sampling and learning in turns, with what they take."""
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.speed._cases import LearningCase, SamplingCase
    from posttrain.runs.speed._memory import MemoryCase
    from posttrain.runs.speed.runs import recipe_for

    recipe = recipe_for(model, dtype)
    source = Model(source=str(model), dtype=dtype, trained=True)  # type: ignore[arg-type]

    def make(policy: "Policy") -> tuple[SamplingCase, LearningCase]:
        given = policy, recipe, size, requests, place
        return SamplingCase(*given), LearningCase(*given)

    return MemoryCase(recipe, lambda: load_policy("policy", source, {}, place), make)


if __name__ == "__main__":
    sys.exit(main())
