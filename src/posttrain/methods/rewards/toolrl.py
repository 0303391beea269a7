"""ToolRL: GRPO with a reward for the layout and a fine-grained one for the tool calls.

Source: Qian et al. 2025, arXiv:2504.13958, and its release: R_format of 0 or 1 and R_correct from -3 to 3, for names,
parameter names and values of calls (`rewards/tool_calls`, which has the variants studied), groups of 4, advantages
divided by the group's std, no KL.

    posttrain run toolrl tasks=mine.jsonl model=FOLDER
    # columns: prompt, answer; the answer has lines {"name": "f", "parameters": {"a": 1}}, OpenAI's tool_calls, or text

A completion has the form ``<think>why</think>``, then ``<tool_call>`` with a call a line, or ``<response>``.
`reward.schedule=smooth`, `reward.match=coarse` and `reward.length=true` are those that the paper compares.

Differs: of the variant ``intermediate`` the release's formula was read as one point for each whole call besides that
for the names.

Measured here over five seeds (`tool_requests`, 60 steps of 16 x 4): 37 % of the groups have no gradient where parts of
calls are rewarded, 40 % where whole calls are, 67 % where it is all or nothing. Held-out requests with right layout and
calls are 42 % [25, 59], 40 % [28, 53] and 43 % [34, 53]: no difference that five seeds can show. With the length the
completions are no longer (10.2 tokens both): thoughts are empty, and below three words that reward is 0.

By a table that draws a tool, three values and the words of the thought (`docs/experiments/tool_tables.py`, five seeds),
half of the calls are right after 8.8 [7.8, 9.8] steps with ToolRL's parts, 17.6 [14.2, 21.0] with whole calls and 40.6
[35.5, 45.7] with all or nothing, nine in ten after 15.6, 25.2 and 47.8. The reward of length lengthens thoughts from
164 [77, 250] to 512 words, and as many calls are right (99.3 %).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.tool_requests import tool_requests

PARENT: Final = "grpo"
SETTING: Final = "tool_requests"
PAPER: Final = "arXiv:2504.13958"
ROWS: Final = (170,)


def toolrl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: partial credit for names, parameter names and values of tool calls."""
    recipe = grpo(recipe or tool_requests())
    stage = rl_of(recipe)
    own = stage.reward if isinstance(stage.reward, ToolCalls) else ToolCalls()
    stage = replace(stage, reward=replace(own, match="fine"))
    return with_stage(replace(recipe, name="toolrl"), stage)
