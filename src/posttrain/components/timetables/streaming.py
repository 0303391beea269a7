"""Sample without waiting for a step: rollouts go on over changes of the weights, and batches form as rollouts end.

Source: the asynchrony of ASearcher (arXiv:2508.07976; released code, areal/api/workflow_api.py) and AsyncFlow
(arXiv:2507.01663, streams of samples from a table). With B groups a step, a group may start while

    accepted + running < (eta + version + 1) B   and   running < the setting `running`

where version is the number of steps that have been learned from, and groups that are rejected are not accepted. A step
is learned from when B groups have ended. `eta` bounds when a group starts, not how old it is at its end: the metric
``beyond_eta`` is the share of older groups, and `oldest` a bound of their age.

Completions are sampled in pieces. Between two pieces the weights may change; each token keeps its log-probability and
the weights that drew it. ``stream.jsonl`` of the run has the pieces and what made each batch; `posttrain replay RUN`
computes the same weights from it.

Differs: what ends first is decided by numbers of tokens by default: all rollouts in progress write a piece, then all
the next. So a run repeats and resumes bit for bit, with any number of samplers. Pieces are waited for, and `learning`
of them are sampled beside each step; with ``order=clock`` none is. A group is begun whole. An environment that works
in other processes may come a piece late. Flows are sampled whole.
"""

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.timetables import Streams, Timetable
from posttrain.errors import UserError


@frozen
class Streaming(Timetable):
    """A quota of groups that are in progress or wait, in units of steps."""

    eta: Annotated[int, Field(ge=0, le=65536)] = 1
    """Steps that sampling may be ahead (4 in ASearcher); with 0 only the groups of the next step may start."""
    piece: Annotated[int, Field(ge=1, le=65536)] = 32
    """Tokens of a completion that are sampled with the same weights, at most."""
    learning: Annotated[int, Field(ge=0, le=65536)] = 1
    """Pieces of each rollout in progress that are sampled while a step is learned from; by the clock as many as there
    is time for."""
    running: Annotated[int, Field(ge=1, le=65536)] = 128
    """Most groups in progress (128 in ASearcher)."""
    oldest: Annotated[int, Field(ge=0, le=65536)] | None = None
    """Most steps between the first token of a group and the step that learns from it; None bounds the start alone."""
    too_old: Literal["drop", "wait"] = "drop"
    """What is done about older ones: groups that are too old when they end, or while they wait, are dropped and free
    their place; or a step waits for those that would become too old. Then `oldest` is at least `eta`."""
    filtered: Literal["batch", "group"] = "batch"
    """What filters see: the groups of a step, or each group when it ends, and what is dropped frees its place
    (dynamic filtering of ASearcher)."""
    order: Literal["tokens", "clock"] = "tokens"
    """Which group ends first: by numbers of tokens, or by the clock. By the clock no piece waits for another, groups
    arrive as they end, and where samplers are processes of their own, pieces are sampled as long as a step is learned
    from; those under way are waited for when the weights change. Such a run does not repeat; `posttrain replay` of its
    journal gives its weights."""
    caches: Literal["renewed", "kept"] = "renewed"
    """What a piece attends to: keys and values of all tokens before it, computed anew with the weights of the piece, or
    those that are there, of the weights that the tokens had when they were read. Recorded log-probabilities are of
    what was computed. Kept ones go with the text to any sampler, and into checkpoints. A turn of a conversation is a
    request of its own, and its prompt is computed with its weights."""
    rejected: Annotated[int, Field(ge=1, le=65536)] = 10
    """Batches of groups that may be rejected for one step; then it learns from the groups that there are, if any."""

    def __post_init__(self) -> None:
        if self.too_old == "wait" and self.oldest is not None and self.oldest < self.eta:
            raise UserError(
                f"schedule.oldest={self.oldest} with schedule.too_old=wait is less than schedule.eta={self.eta}: "
                "more groups may start than can be learned from in time. Set schedule.oldest to schedule.eta or more"
            )

    @property
    def ahead(self) -> int:
        """None: the steps are not sampled one by one."""
        return 0

    @property
    def streams(self) -> Streams:
        """These settings."""
        return Streams(**{own.name: getattr(self, own.name) for own in fields(Streams)})
