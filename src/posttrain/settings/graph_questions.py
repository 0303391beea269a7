"""Graph questions: facts of a random graph are learned from short chains, and asked for in longer ones.

The bundled model imitates questions of one fact, which teach it the graph; reinforcement is on questions of one to
three facts, with the letter of the right option as the reward. A random letter is right once in four.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.choice import Choice
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.knowledge_graph import KnowledgeGraph
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def graph_questions() -> Recipe:
    """120 updates of imitation of single facts, then 40 steps of 16 questions with 4 answers each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    single = replace(
        imitation,
        tasks=KnowledgeGraph(size=200, hops=(1, 1), seed=1),
        batch=16,
        epochs=10.0,
        max_steps=120,
        learner=replace(imitation.learner, optimizer=AdamW(lr=1e-3)),
    )
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=80)),
        reward=Choice(extract=("hashes",)),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="graph_questions",
        tasks=KnowledgeGraph(size=1500),
        stages={"sft": single, "rl": stage},
        evaluation=Evaluation(verifier=stage.reward),
    )
