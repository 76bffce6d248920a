"""Speculative decoding with a drafting head: a small network guesses, the target checks all guesses in one pass."""

from dataclasses import dataclass
from typing import Any

from pipelines.base import ARImagePipeline
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.eagle_drafter import DynamicDrafter, StaticDrafter
from pipelines.decoding.rules import ExactRule, Rule
from pipelines.models.eagle import EagleHead, EagleRun, check_fit
from pipelines.models.eagle3 import Eagle3Head, Eagle3Run
from pipelines.models.protocol import Session
from pipelines.primitives.tree import MOST_NODES, STATIC_TREES, StaticTree, path_down
from pipelines.request import Plan
from pipelines.settings import Settings, knob


# Name of a head -> what it is, and what runs it.
HEADS = {"eagle1": (EagleHead, EagleRun), "eagle3": (Eagle3Head, Eagle3Run)}


@dataclass(frozen=True)
class DraftSettings(Settings):
    draft: str = knob(
        "chain",
        choices=("chain", "static", "dynamic"),
        label="Draft",
        help="One guess a square; a tree of fixed shape, drawn; or a tree that grows where the head is sure.",
    )
    length: int = knob(
        5, low=1, high=8, step=1, label="Length L", help="Squares that a chain or a dynamic tree looks ahead."
    )
    tree: int | list = knob(15, choices=tuple(STATIC_TREES), label="Static tree", help="Guesses of the static tree.")
    tree_width: int = knob(
        8, low=1, high=10, step=1, label="Tree width", help="Guesses of a level that a dynamic tree grows on."
    )
    tree_nodes: int = knob(
        24, low=4, high=MOST_NODES, step=1, label="Tree nodes", help="Guesses of the dynamic tree, the likeliest ones."
    )
    head: str = knob(
        "eagle1", choices=tuple(HEADS), label="Head", help="The kind that the model's drafting head is: EAGLE-1 or -3."
    )

    @property
    def drawn_tree(self) -> StaticTree:
        """Of a draft that is no dynamic tree."""
        if self.draft == "chain":
            return path_down(self.length)
        return STATIC_TREES[self.tree] if isinstance(self.tree, int) else StaticTree(tuple(map(tuple, self.tree)))

    @property
    def depth(self) -> int:
        """Of the deepest guess, where the picture has room for it."""
        return self.length if self.draft == "dynamic" else self.drawn_tree.height


class DraftPipeline(ARImagePipeline):
    """Base of the methods that guess with `draft_model`."""

    needs_draft_model = True
    Settings = DraftSettings

    def _plan(self, *asked: Any) -> Plan:
        """Raises ValueError too without a draft model that fits the transformer and is of the kind asked for."""
        plan = super()._plan(*asked)
        check_fit(self.draft_model, HEADS[plan.settings.head][0], self.transformer)
        return plan

    def method(self, settings: DraftSettings, session: Session) -> tuple[Drafter, Rule]:
        return self.drafter(settings, session), self.rule(settings)

    def drafter(self, settings: DraftSettings, session: Session) -> Drafter:
        run = HEADS[settings.head][1](self.draft_model, session)
        if settings.draft == "dynamic":
            return DynamicDrafter(run, session, settings.tree_width, settings.tree_nodes, settings.length)
        return StaticDrafter(run, session, settings.drawn_tree)

    def rule(self, settings: DraftSettings) -> Rule:
        """What a method is known by: when a guess is kept, and what replaces a refused one."""
        raise NotImplementedError(f"{type(self).__name__} names no rule.")


class SpeculativePipeline(DraftPipeline):
    """Text to image with fewer passes of the target, and exactly its law: speculative decoding with an EAGLE head.

    A guess x is kept with chance min(1, p/q), p the target's probability and q the head's; what replaces a refused one
    makes up for the difference. Leviathan et al. 2023, arXiv:2211.17192; the head is EAGLE-1's (Li et al. 2024,
    arXiv:2401.15077), which also drafts trees of sampled children, or EAGLE-2's of the likeliest (arXiv:2406.16858).

    >>> import torch
    >>> from pipelines import SpeculativePipeline
    >>> pipe = SpeculativePipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), length=5).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    def rule(self, settings: DraftSettings) -> Rule:
        return ExactRule()
