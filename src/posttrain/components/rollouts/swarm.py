"""Nodes that share texts: each task is answered by one of several models, and its answers are offered to the others.

Source: SAPO, arXiv:2509.08721, and its demonstration (gensyn-ai/genrl, examples/rgym/data.py): what is shared is the
question, the gold answer and the texts of the answers, no log-probabilities and no weights. A node that takes them
writes them in the ids of its own tokenizer, after the question by its own template, and scores them by its own
verifier; for its loss they are as if it had written them, with its own policy before the update in the ratio.

Which of them it learns from decides the filter ``exchange``, by the fact `Shared`.

Differs: nodes are models of one process and work in step, so that nobody is late; a question is answered by one node in
a step, drawn anew for each. Answers that do not fit into a reader's context are left out.
"""

from collections.abc import Mapping, Sequence

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer, Shared
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Segment, Task, Trajectory


@frozen
class Swarm(Rollout):
    """Samples `n` completions by one node, and offers them to the others."""

    n: PositiveInt = 8
    """Completions per task (8 in the paper)."""
    nodes: tuple[str, ...] = ("policy",)
    """Roles of the models; each learns from its own groups and from those that it takes."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""

    @property
    def group_size(self) -> int:
        """The setting `n`."""
        return self.n

    @property
    def roles(self) -> frozenset[str]:
        """The nodes besides the policy."""
        return frozenset(self.nodes) - {"policy"}

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """The group of the author, and the same texts as a group of every other node."""
        drawn = samplers["policy"] if "policy" in samplers else sampler_of(self.nodes[0], samplers)
        author = self.nodes[int(drawn.uniform() * len(self.nodes))]
        writer = sampler_of(author, samplers)
        prompt = prompt_segment(task, writer)
        completions = await writer.sample(prompt.token_ids, self.n, self.sampling, prompt.vectors)
        own = answers(task, prompt, completions, author)
        groups = [await scorer(Group(key=task.key, trajectories=own))]
        for reader in self.nodes:
            if reader == author:
                continue
            fact = Shared(author=author, draw=drawn.uniform())
            read = _read(task, own, reader, sampler_of(reader, samplers), fact)
            if read:
                groups.append(await scorer(Group(key=task.key, trajectories=read)))
        return groups


def _read(
    task: Task, written: Sequence[Trajectory], role: str, sampler: Sampler, fact: Shared
) -> tuple[Trajectory, ...]:
    """The texts of a group as a node would have written them."""
    prompt = prompt_segment(task, sampler)
    read = []
    for trajectory in written:
        ids = sampler.encode_completion(task.prompt, trajectory.segments[-1].text)
        ids = ids if trajectory.stop_reason == "stop" else ids[:-1]  # one that was cut has no end
        if len(ids) and len(prompt) + len(ids) <= sampler.context:
            own = Segment(actor=role, token_ids=ids, trained=True, text=trajectory.segments[-1].text)
            read.append(
                Trajectory(
                    task=task,
                    segments=(prompt, own),
                    stop_reason=trajectory.stop_reason,
                    sample=trajectory.sample,
                    facts=(fact,),
                )
            )
    return tuple(read)
