"""Keep the mean of a model's features beside its weights: `python -m training.feature_mean --model FOLDER`.

CASCADE compares the target's states less this mean. It is taken over pictures that the model draws one token a pass,
at its own default sampling, for captions of random scenes.
"""

import argparse

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import AutoTokenizer, T5EncoderModel

from pipelines.models.feature_mean import FILE, write_mean
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import LlamaGen
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY
from training import command, positive_int, saved_model, scenes
from training.sampling import default_sampling


@torch.no_grad()
def feature_mean(family: LlamaGen, prompts: list[str], guidance_scale: float, warp: Warp, seed: int) -> Tensor:
    """[D] float32 mean of what the head reads at the rows of image tokens, conditional: one drawn picture a prompt."""
    side = family.transformer.config.grid_size
    layout, means = Layout(side, side), []
    for index, prompt in enumerate(prompts):
        chance = Chance(torch.Generator().manual_seed(seed + index))
        session, rows = family.open(family.condition(prompt, None), guidance_scale, warp, layout), []
        for _ in range(layout.length):
            scores = session.score(EMPTY)
            rows.append(scores.hidden[0, 0])
            session.commit(EMPTY, [], int(chance.categorical(scores.probs)))
        means.append(torch.stack(rows[1:]).double().mean(0))  # the first row is the prompt's last
    return torch.stack(means).mean(0).float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=saved_model, default="assets/emoji-scenes", help="folder to write into")
    parser.add_argument("--pictures", type=positive_int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = Accelerator().device
    family = LlamaGen(
        LlamaGenTransformer.from_pretrained(args.model / "transformer").float().eval().to(device),
        None,
        T5EncoderModel.from_pretrained(args.model / "text_encoder").float().eval().to(device),
        AutoTokenizer.from_pretrained(args.model / "tokenizer"),
    )
    rng = np.random.default_rng(args.seed)
    prompts = [scenes.caption(scenes.sample(rng), rng) for _ in range(args.pictures)]
    write_mean(args.model, feature_mean(family, prompts, *default_sampling(args.model), args.seed))
    print(f"mean of {args.pictures} pictures saved in {args.model / FILE}")


if __name__ == "__main__":
    command(main)
