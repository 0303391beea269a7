"""Programs with kernels that are right or wrong by construction, or by what their references give."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from posttrain.grading.kernel_references import open_references
from posttrain.grading.kernel_values import TOLERANCE, cases_of, difference, drawn, packed, unpacked
from posttrain.types import Task

OTHERS = 3


class KernelCases:
    """Of a task: its kernel in three writings; programs without one, or whose results do not come from it; and kernels
    for other programs, whose references give other values in torch on inputs of the task.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._answer = open_references(None)
        self._places = {task.key: place for place, task in enumerate(tasks)}

    def __call__(self, task: Task) -> Iterator[tuple[bool, str]]:
        own, reference = str(task.fields["kernel"]), str(task.fields["reference"])
        last = reference.rstrip().rpartition("return ")[2]
        yield True, f"# a kernel\n{own}"
        yield True, re.sub(r"\bk\b", "body", own)
        yield False, reference
        yield False, own.replace("    return out\n", f"    return {last}\n")
        yield False, own.replace("    return out\n", "    return x\n")
        yield False, "print('allclose: True')\n\ndef f(*a):\n    print('equal')\n"
        for other in self._others(task):
            yield False, str(other.fields["kernel"])

    def _others(self, task: Task) -> list[Task]:
        place, found = self._places[task.key], list[Task]()
        for other in [*self._tasks[place + 1 :], *self._tasks[:place]]:
            if len(found) == OTHERS:
                break
            if other.fields["reference"] != task.fields["reference"] and self._differ(task, other):
                found.append(other)
        return found

    def _differ(self, task: Task, other: Task) -> bool:
        """Whether the reference of `other` gives something else on inputs of the task."""
        rng = np.random.default_rng(96)
        cases = [[packed(own) for own in drawn(case, rng)] for case in cases_of(task.fields["inputs"])]
        one, two = (
            self._answer({"source": own.fields["reference"], "function": "f", "cases": cases}) for own in (task, other)
        )
        if isinstance(two, str):
            return True
        for wanted, own in zip(one, two, strict=True):
            arrays = [unpacked(result) for result in wanted]
            if len(own) != len(wanted):
                return True
            if any(
                array is not None and difference(result, array, 10 * max(TOLERANCE[array.dtype], 1e-3))
                for result, array in zip(own, arrays, strict=True)
            ):
                return True
        return False
