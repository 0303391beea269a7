"""What the settings of a reinforcement stage come to: how each role learns, which roles and signals that takes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posttrain.stages._needs import compared_roles, of_the_forward_pass
from posttrain.stages._roles import Course, RoleLearning, check_roles
from posttrain.stages._updates import Update

if TYPE_CHECKING:
    from posttrain.recipe.tree import Model
    from posttrain.stages.rl import RL


def learning_of(stage: "RL", role: str) -> RoleLearning:
    """How a role learns, with what it does not say itself."""
    own = stage.by_role.get(role, RoleLearning())
    critic = "critic" if role == "policy" and stage.critic is not None else None
    return replace(
        own,
        advantage=own.advantage or stage.advantage,
        objective=own.objective or stage.objective,
        learner=own.learner or stage.learner,
        critic=own.critic or critic,
    )


def needs_of(stage: "RL", role: str) -> frozenset[str]:
    """Signals to compute before a role's credit is given."""
    wanted = declared(stage, role)
    return wanted - (of_the_forward_pass(wanted) - {"value"})


def declared(stage: "RL", role: str) -> frozenset[str]:
    """Signals that the parts by which a role learns say that they need, and those that the stage's settings do."""
    own = learning_of(stage, role)
    assert own.advantage is not None and own.objective is not None, "see learning_of"
    wanted = own.advantage.needs.union(own.objective.needs, *(p.needs for p in stage.penalties.values()))
    wanted |= {"old_logp"} if stage.old_logp == "recomputed" else set()
    if own.critic is not None and stage.critic is not None:
        wanted |= stage.critic.needs | {"value"}
    return wanted


def roles_of(stage: "RL") -> frozenset[str]:
    """Roles that a stage updates, compares with, samples from or judges by."""
    compared = compared_roles(frozenset().union(*(declared(stage, role) for role in {"policy", *stage.by_role})))
    critics = {own.critic for own in stage.by_role.values() if own.critic} | ({"critic"} if stage.critic else set())
    kept_up = frozenset().union(*(part.roles for part in stage.upkeep.values()))
    asked = stage.rollout.roles | stage.reward.roles
    return frozenset({"policy"} | compared | critics | stage.by_role.keys() | kept_up | asked)


def courses_of(stage: "RL", models: "Mapping[str, Model]") -> dict[str, Course]:
    """How each trained role that writes learns, the policy first, and the critics from what their roles wrote."""
    writers = {name for name, model in models.items() if model.trained and model.head == "language"}
    check_roles(stage.by_role, writers, stage.critic)
    return {role: _course(stage, role) for role in sorted(writers, key=lambda role: (role != "policy", role))}


def first_memory(stage: "RL", courses: Mapping[str, Course]) -> dict[str, Any]:
    """The state of every part with memory before the first step."""
    return {
        "curriculum": stage.curriculum.start(),
        "filters": {name: member.start() for name, member in stage.filters.items()},
        "reward": {},
        "roles": {role: course.start() for role, course in courses.items()},
    }


def _course(stage: "RL", role: str) -> Course:
    own = learning_of(stage, role)
    assert own.advantage is not None and own.objective is not None and own.learner is not None, "see learning_of"
    updates = {
        role: Update(
            learning=own.learner,
            objective=own.objective,
            reducer=stage.reducer,
            correction=stage.correction,
            role=role,
            temperature=stage.rollout.temperature,
        )
    }
    if own.critic is not None and stage.critic is not None:
        updates[own.critic] = Update(
            learning=stage.critic_learner, objective=stage.critic, reducer=stage.reducer, penalized=False
        )
    return Course(
        role=role,
        advantage=own.advantage,
        penalties=stage.penalties,
        needs=needs_of(stage, role),
        updates=updates,
        critic=own.critic,
        temperature=stage.rollout.temperature,
        every=own.every,
        alone=own.alone,
    )
