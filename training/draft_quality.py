"""How well a drafting head foretells its target: agreement and overlap by depth and by how sure the target is."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast, T5EncoderModel

from pipelines.models.eagle import EagleRun
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import LlamaGen
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY, chain
from training.draft_heads import Head, run_of


DEPTH = 5  # guesses of a chain
STRIDE = 8  # tokens between two chains
BINS = (0.5, 1.0, 2.0, 3.0, 4.0)  # nats of entropy of the target's law


@dataclass(frozen=True)
class Quality:
    """Over chains drafted along true pictures; a guess counts as much as the chance that it is tried at all.

    top1: share of guesses whose likeliest token is the target's, by depth. alpha: mean of sum min(p, q), the chance
    that a guess is kept, by depth; and by entropy of p, between the edges of `BINS`, with the share of guesses there.
    accepted_length: tokens a pass that such chains would bring.
    """

    top1: list[float]
    alpha: list[float]
    alpha_by_entropy: list[float]
    entropy_share: list[float]
    accepted_length: float

    def to_dict(self) -> dict[str, list[float] | float]:
        return {
            name: [round(part, 3) for part in value] if isinstance(value, list) else round(value, 3)
            for name, value in asdict(self).items()
        }


@torch.no_grad()
def measure(
    head: Head,
    transformer: LlamaGenTransformer,
    text_encoder: T5EncoderModel,
    text: PreTrainedTokenizerFast,
    captions: list[str],
    pictures: Tensor,
    guidance_scale: float,
    warp: Warp,
) -> Quality:
    """Draft along pictures, [B, T] tokens, of given captions."""
    family = LlamaGen(transformer, None, text_encoder, text)
    layout = Layout(transformer.config.grid_size, transformer.config.grid_size)
    found = []
    for seed, (caption, picture) in enumerate(zip(captions, pictures.tolist())):
        chance = Chance(torch.Generator().manual_seed(seed))
        session = family.open(family.condition(caption, None), guidance_scale, warp, layout)
        run = run_of(head, session)
        session.score(EMPTY)
        session.commit(EMPTY, [], picture[0])
        features = session.prefix_taps if session.keep_taps else session.prefix_hidden
        tokens = [0] * head.text_rows + picture[:1]
        for first in range(1, layout.length - DEPTH - STRIDE, STRIDE):
            found.append(along_chain(run, session, run.extend(tokens, features), chance))
            true = chain(picture[first : first + STRIDE - 1], torch.zeros(STRIDE - 1, head.config.vocab_size))
            scores, tokens = session.score(true), picture[first : first + STRIDE]
            features = scores.taps if session.keep_taps else scores.hidden
            session.commit(true, list(range(STRIDE - 1)), tokens[-1])
    return summed(torch.stack(found))


def along_chain(run: EagleRun, session, law: Tensor, chance: Chance) -> Tensor:
    """[DEPTH, 4] of one chain: chance that the guess is tried, whether the likeliest agree, overlap, entropy."""
    guesses, laws = [], [law]
    for depth in range(1, DEPTH + 1):
        guesses.append(int(chance.categorical(laws[-1])))
        if depth < DEPTH:
            laws.append(run.step(guesses[-1:], [0], depth))
    q = torch.cat(laws)  # [DEPTH, V]
    p = session.score(chain(guesses, q)).probs[:-1]
    kept = (p[range(DEPTH), guesses] / q[range(DEPTH), guesses]).clamp(max=1)
    tried = torch.cat([kept.new_ones(1), kept.cumprod(0)])
    agree = (p.argmax(-1) == q.argmax(-1)).float()
    return torch.stack([tried[:-1], agree, torch.minimum(p, q).sum(-1), torch.special.entr(p).sum(-1)], -1)


def summed(found: Tensor) -> Quality:
    """found: [chains, DEPTH, 4]."""
    tried, agree, overlap, entropy = found.unbind(-1)
    bins = torch.bucketize(entropy.flatten().contiguous(), torch.tensor(BINS, device=entropy.device))
    weight = tried.flatten().new_zeros(len(BINS) + 1).index_add_(0, bins, tried.flatten())
    kept = torch.zeros_like(weight).index_add_(0, bins, (tried * overlap).flatten())
    reached = tried.mean(0).clamp(min=1e-9)
    return Quality(
        top1=((tried * agree).mean(0) / reached).tolist(),
        alpha=((tried * overlap).mean(0) / reached).tolist(),
        alpha_by_entropy=(kept / weight.clamp(min=1e-9)).tolist(),
        entropy_share=(weight / weight.sum()).tolist(),
        accepted_length=1 + float((tried * overlap).mean(0).sum()),
    )
