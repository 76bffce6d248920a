"""The one loop: draft, score, verify, commit. Nobody else loops."""

import time
from collections.abc import Generator

import numpy as np
import torch

from pipelines.decoding.drafters import Drafter
from pipelines.decoding.verify import Verdict, Verifier
from pipelines.models.protocol import Scores, Session
from pipelines.primitives.chance import Chance
from pipelines.primitives.trace import Step
from pipelines.primitives.tree import EMPTY, Draft


TOP = 8  # likeliest tokens of every target law that a step keeps


@torch.no_grad()
def decode(
    session: Session, drafter: Drafter, verifier: Verifier, chance: Chance, length: int
) -> Generator[Step, None, None]:
    """Generate `length` tokens, one `Step` a round. Round 0 is the prefill: an empty draft, one token.

    session: opened, not yet scored. The clock stands still while the consumer holds a step and while it is written.
    """
    committed: list[int] = []
    index = 0
    while len(committed) < length:
        room = length - len(committed) - 1
        clock = Clock()
        draft = drafter.propose(committed, room, chance) if committed else EMPTY
        assert draft.height <= room, f"a draft of depth {draft.height} overshoots the {room} positions left"
        draft_seconds = clock.lap()
        scores = session.score(draft)
        scores.probs[-1, -1].item()  # a synchronising read: the forward has ended
        target_seconds = clock.lap()
        verdict = verifier(draft, scores, chance)
        session.commit(draft, verdict.path, verdict.token)
        drafter.observe(draft, scores, verdict, chance)
        rest_seconds = clock.lap()
        step = Step(
            index=index,
            start=len(committed),
            **_guesses(draft, scores, verdict),
            **_opinions(scores),
            draft_calls=draft.calls,
            draft_seconds=draft_seconds,
            target_seconds=target_seconds,
            rest_seconds=rest_seconds,
            notes=drafter.explain() | verifier.explain(),
        )
        committed += step.committed.tolist()
        index += 1
        yield step


class Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        seconds, self.last = now - self.last, now
        return seconds


def _guesses(draft: Draft, scores: Scores, verdict: Verdict) -> dict[str, np.ndarray]:
    p = q = np.empty(0, np.float32)
    if len(draft):
        unjudged = _array(scores.probs[[parent + 1 for parent in draft.parents], draft.tokens])
        judged_by = np.array(verdict.p, np.float32)
        p = np.where(np.isnan(judged_by), unjudged, judged_by)
        q = _array(draft.q[range(len(draft)), draft.tokens])
    return {
        "tokens": np.array(draft.tokens, np.int32),
        "parents": np.array(draft.parents, np.int32),
        "p": p,
        "q": q,
        "accept_prob": np.array(verdict.accept_prob, np.float64),
        "dice": np.array(verdict.dice, np.float64),
        "path": np.array(verdict.path, np.int32),
        "committed": np.array([*(draft.tokens[node] for node in verdict.path), verdict.token], np.int32),
    }


def _opinions(scores: Scores) -> dict[str, np.ndarray]:
    top = scores.probs.topk(min(TOP, scores.probs.shape[-1]))
    return {
        "top_tokens": top.indices.cpu().numpy().astype(np.int32),
        "top_probs": _array(top.values),
        "entropy": _array(torch.special.entr(scores.probs).sum(-1)),
    }


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
