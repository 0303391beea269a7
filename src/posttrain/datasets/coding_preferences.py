"""Five preferences about programs: rubrics with named levels for a judge, and principles for those who write.

Source: the five preferences of CodeUltraFeedback, arXiv:2403.09032. The texts are ours.
"""

from collections.abc import Mapping
from typing import Final

RUBRICS: Final[Mapping[str, str]] = {
    "instruction": (
        "How far the answer does what the instruction demands. 1 ignored, 2 mostly missed, 3 partly done, 4 done with "
        "small gaps, 5 done in full."
    ),
    "explanation": (
        "How well the answer explains its program. 1 nothing, 2 little or wrong, 3 the outline, 4 most steps, 5 every "
        "step, clearly."
    ),
    "complexity": (
        "How little time and memory the program needs. 1 wasteful, 2 poor, 3 acceptable, 4 good, 5 as little as the "
        "problem allows."
    ),
    "readability": (
        "How easily the program is read. 1 obscure, 2 hard, 3 acceptable, 4 clear, 5 clear names and structure "
        "throughout."
    ),
    "style": (
        "How well the program follows the idioms of its language. 1 none, 2 few, 3 some, 4 most, 5 all, without "
        "exception."
    ),
}
"""What 1 to 5 stand for, by preference."""
PRINCIPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "instruction": (
        "Do everything that the instruction demands, and nothing else.",
        "Check each condition of the instruction before you answer.",
    ),
    "explanation": (
        "Explain in comments what each step is for.",
        "Explain the idea in plain words before the program.",
    ),
    "complexity": (
        "Choose the algorithm with the least time.",
        "Use no more memory and no more steps than needed.",
    ),
    "readability": (
        "Use names that describe what they hold.",
        "Write short functions, each for one purpose.",
    ),
    "style": (
        "Follow the conventions of the language.",
        "Format the program as a formatter of the language would.",
    ),
}
"""System prompts of a writer, by preference."""
