"""Word problems with an adapter: the same model and problems, with LoRA on a frozen base, in less memory.

An adapter takes ten or more times the learning rate of all weights (Schulman et al. 2025, LoRA Without Regret).
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.models import LoRA
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.word_problems import word_problems


def word_problems_lora() -> Recipe:
    """30 steps of `word_problems`, learned by an adapter of rank 16, 256 tokens at a time."""
    recipe = word_problems()
    stage = rl_of(recipe)
    learner = replace(stage.learner, optimizer=AdamW(lr=3e-4), micro_batch_tokens=256)
    return replace(
        recipe,
        name="word_problems_lora",
        models={"policy": replace(recipe.models["policy"], lora=LoRA())},
        stages={"rl": replace(stage, steps=30, learner=learner)},
    )
