"""Runs the reference programs of kernels, by torch, in workers that can be killed."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from posttrain.grading.kernel_values import Argument, Array, packed, unpacked
from posttrain.grading.workers import Limits, Runner

GRADER: Final = "posttrain.grading.kernel_references:open_references"
LIMITS: Final = Limits(cpu_seconds=20.0, wall_seconds=300.0, memory_mib=4096)
"""Torch is loaded within them."""
Expected = list[list[Array]]
"""Of each case its results."""


@cache
def _runner() -> Runner:
    return Runner(GRADER, limits=LIMITS, preload=("posttrain.grading.kernel_values",), workers=1)


async def expected_of(source: str, function: str, cases: Sequence[Sequence[Argument]]) -> Expected | str:
    """What the reference gives for each case, or why it gives nothing."""
    call = {"source": source, "function": function, "cases": [[packed(a) for a in case] for case in cases]}
    outcome = await _runner().call(call)
    if outcome.how != "ok":
        return f"the reference failed ({outcome.how}): {outcome.explanation}"
    if isinstance(outcome.value, str):
        return f"the reference failed: {outcome.value}"
    found = [[unpacked(result) for result in results] for results in outcome.value]
    return [[result for result in results if result is not None] for results in found]


def open_references(argument: Any) -> Callable[[Mapping[str, Any]], Any]:
    """In a worker: the function that runs a reference."""
    import torch

    torch.set_num_threads(1)

    def array(found: Sequence[Any]) -> Any:
        if found[0] == "number":
            return found[1]
        own = unpacked(list(found))
        assert own is not None
        return torch.from_numpy(own.values.copy()).to(getattr(torch, own.dtype))

    def result(value: Any) -> list[Any]:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"it returns {type(value).__name__}, not a tensor or several")
        value = value.detach().contiguous()
        name = str(value.dtype).removeprefix("torch.")
        return packed(Array(name, value.to(torch.float32 if name == "bfloat16" else value.dtype).numpy()))

    def answer(call: Mapping[str, Any]) -> Any:
        space: dict[str, Any] = {"__name__": "reference", "torch": torch, "F": torch.nn.functional}
        try:
            exec(compile(call["source"], "reference.py", "exec"), space)
            found = []
            for case in call["cases"]:
                value = space[call["function"]](*map(array, case))
                found.append([result(own) for own in (value if isinstance(value, tuple | list) else (value,))])
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:300]
        return found

    return answer
