"""SJD-VP: guesses lean towards tokens whose probability rose pass after pass."""

from dataclasses import dataclass

from pipelines.base import ARImagePipeline
from pipelines.decoding.coupling import coupling
from pipelines.decoding.drafters import Drafter
from pipelines.decoding.growth import FUSIONS, Q_MODES, Growth, GrowthDrafter, RawGrowthDrafter
from pipelines.decoding.recall import RecallDrafter
from pipelines.decoding.rules import ExactRule, Rule
from pipelines.models.protocol import Session
from pipelines.pipeline_gsd import GroupSettings, group_rule
from pipelines.pipeline_sjd import SJDSettings
from pipelines.pipeline_sjd_lantern import BorrowSettings, borrow_rule
from pipelines.settings import VOCABULARY, knob


RULES = {"sjd": lambda pipe, settings: ExactRule(), "gsd": group_rule, "lantern": borrow_rule}
RECALL = "recall"
DRAFTERS = {"fused": GrowthDrafter, "raw": RawGrowthDrafter}


@dataclass(frozen=True)
class GrowthSettings(BorrowSettings, GroupSettings, SJDSettings):
    base: str = knob(
        "sjd",
        choices=tuple(RULES),
        label="Base",
        help="Whose rule checks the guesses; group, gaps and replacement are gsd's, neighbours and budget lantern's.",
    )
    growth_steps: int = knob(
        3,
        low=1,
        high=5,
        step=1,
        label="Growth steps N",
        help="A token gains where its probability rose in each of the last N passes.",
    )
    gain: float = knob(
        1.0,
        low=0.0,
        high=3.0,
        step=0.1,
        label="Gain",
        help="How much such a token gains; 0 changes nothing.",
    )
    decay: float = knob(
        0.5,
        low=0.1,
        high=0.95,
        step=0.05,
        label="Decay",
        help="Weight of a past pass over that of the one after it, in the mean that growth is measured against.",
    )
    growth_top_k: int = knob(
        0,
        low=0,
        high=VOCABULARY,
        step=1,
        label="Growth top-k",
        help="Only the k likeliest tokens may gain; 0 lets all that may be drawn.",
    )
    q_mode: str = knob(
        "fused",
        choices=Q_MODES,
        label="Judged by",
        help="The law that guesses are drawn from (fused, lossless), or the one without growth (raw, not lossless).",
    )
    fusion: str = knob(
        "bayes",
        choices=(*FUSIONS, RECALL),
        label="Fusion",
        help="Guesses follow probability and growth (bayes), growth alone (score), probability alone (none), or the "
        "law that a square had when those before it were as now (recall).",
    )


class SJDVPPipeline(ARImagePipeline):
    """Text to image with fewer passes and no second network: speculative Jacobi decoding with a verification prior.

    A token whose probability rose in each of the last passes is drafted more often, and the law it is drafted from is
    its q. So it is as lossless as its base: exact with base "sjd" and q_mode "fused"; q_mode "raw" is not.
    arXiv:2603.27115, on speculative Jacobi decoding, GSD or LANTERN; what the paper leaves open is as `Growth` says.
    fusion "recall" is ours, exact, and needs the fewest passes: see `RecallDrafter`; it heeds no knob of growth.

    >>> import torch
    >>> from pipelines import SJDVPPipeline
    >>> pipe = SJDVPPipeline.from_pretrained("assets/emoji-scenes")
    >>> trace = pipe("a penguin on snow", generator=torch.Generator().manual_seed(7), growth_steps=2).traces[0]
    >>> trace.complete, trace.nfe < 256
    (True, True)
    """

    Settings = GrowthSettings

    def method(self, settings: GrowthSettings, session: Session) -> tuple[Drafter, Rule]:
        window = session.layout, settings.window, settings.start
        couple, rule = coupling(settings.coupling), RULES[settings.base](self, settings)
        if settings.fusion == RECALL:
            return RecallDrafter(*window, couple), rule
        growth = Growth(settings.growth_steps, settings.gain, settings.decay, settings.growth_top_k, settings.fusion)
        return DRAFTERS[settings.q_mode](*window, growth, couple), rule
