"""Runs graders that may hang, crash or eat memory, in worker processes that can be killed without harm to the others.

For trusted grader code on hostile input (a mathematical answer that takes for ever to simplify); code that a model
wrote belongs into a sandbox. A `Runner` holds warm workers. Each is forked from a small *zygote*, a process of its own
that has imported what the grader needs and nothing else (never torch), so a killed worker is replaced in milliseconds.

    deadline     processor time, counted by the kernel, so a busy machine does not change a result; beside it a wider
                 one on the clock, for what waits instead of working
    stopping     SIGKILL to the worker's process group; nothing is asked of the grader, no alarm, no thread
    memory       RLIMIT_DATA, and the kernel's memory killer takes workers before the run
    messages     JSON with a length in front; no pickle, so a worker can send nothing that runs here
    results      in the order of the arguments, one `Outcome` each; one that dies takes no other with it

What goes wrong outside the grader (no process could be started, somebody killed the worker) is tried again; a grader
that ran out of time or memory or crashed is not, as it would again.
"""

from posttrain.grading.workers.outcomes import Limits, Outcome
from posttrain.grading.workers.runner import Runner
from posttrain.grading.workers.zygote import inside_worker

__all__ = ["Limits", "Outcome", "Runner", "inside_worker"]
