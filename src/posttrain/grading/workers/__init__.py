"""Runs graders that may hang, crash or exhaust memory, in worker processes that can be killed independently.

For trusted grader code on hostile input (a mathematical answer whose simplification does not end); code that a model
wrote belongs into a sandbox. A `Runner` holds warm workers. Each is forked from a small *zygote*, a separate process
that has imported only what the grader needs (never torch), so a killed worker is replaced in milliseconds.

    deadline     processor time, counted by the kernel, so that a busy machine does not change a result; and a longer
                 limit of wall-clock time, for graders that wait
    stopping     SIGKILL to the worker's process group and to all that it started; the grader need not cooperate, no
                 alarm, no thread
    memory       RLIMIT_DATA, and the kernel's memory killer takes workers before the run
    messages     JSON with a length in front; no pickle, so a worker can send nothing that runs here
    results      in the order of the arguments, one `Outcome` each; one that dies takes no other with it

A `Session` is a worker for several calls that share state, such as the turns of an episode.

A call that failed outside the grader (no process could be started, the worker was killed from outside) is retried. A
grader that exceeded its time or memory or crashed is not, as it would again.
"""

from posttrain.grading.workers.outcomes import Limits, Outcome
from posttrain.grading.workers.runner import Runner, Session, Unstarted
from posttrain.grading.workers.zygote import children, inside_worker

__all__ = ["Limits", "Outcome", "Runner", "Session", "Unstarted", "children", "inside_worker"]
