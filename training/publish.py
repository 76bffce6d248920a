"""Put trained parts together as the model folder that ships: `python -m training.publish --out assets/emoji-scenes`.

Large weights are stored in half precision; loading brings them back to float32.
"""

import argparse
import json
from pathlib import Path

from transformers import AutoTokenizer, T5EncoderModel

from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.patch_tokenizer import PatchTokenizer
from training import command, new_folder, saved_folder, saved_model, scenes
from training.draft_heads import HEADS, Head, saved_head


INDEX = {
    "_class_name": "ARPipeline",
    "transformer": ["pipelines.models.llamagen", "LlamaGenTransformer"],
    "vqvae": ["pipelines.models.patch_tokenizer", "PatchTokenizer"],
    "text_encoder": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "PreTrainedTokenizerFast"],
}
EMBED_GAP = {"embed_gap": 2.9}  # one pair of tokens in ten is as near
SAMPLING = {"guidance_scale": 2.0, "top_p": 0.9}
ALIKE = {"tau_level": 0.92, "tau_parent": 0.79}  # by benchmarks.similarity: 30 % and 25 % of guesses may borrow
CHAIN = {"length": 3}  # of 1 to 5 no length gives clearly more tokens a second
CHAINED = ("SpeculativePipeline", "LanternPipeline", "UniformRSDPipeline", "CoolSDPipeline")
DRAFTING = (*CHAINED, "LanternPlusPlusPipeline", "CascadePipeline")
DEFAULTS = {
    "sampling": SAMPLING,
    **dict.fromkeys(("GSDPipeline", "SJDVPPipeline"), EMBED_GAP),
    **dict.fromkeys(CHAINED, CHAIN),
    "CascadePipeline": ALIKE,
}
EXAMPLES = [
    "a penguin on snow", "a rocket in the night sky", "a hamburger on a wooden table", "a cupcake on sand",
    "a taxi by a brick wall", "a cactus on a pink background", "a balloon at sunset", "a fox in the forest",
]  # fmt: skip


def drafting_with(head: Head) -> dict[str, dict]:
    """`DEFAULTS`, and for methods that draft the kind of head where it is not EAGLE-1's."""
    if isinstance(head, HEADS["eagle1"]):
        return DEFAULTS
    return DEFAULTS | {method: DEFAULTS.get(method, {}) | {"head": "eagle3"} for method in DRAFTING}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tokenizer", type=saved_folder, default=str(scenes.CACHE / "tokenizer"), help="PatchTokenizer to ship"
    )
    parser.add_argument(
        "--model", type=saved_model, default=str(scenes.CACHE / "transformer"), help="folder of train_transformer"
    )
    parser.add_argument("--drafter", type=saved_folder, help="folder of train_drafter; none if not given")
    parser.add_argument("--out", type=new_folder, default=Path("assets/emoji-scenes"))
    args = parser.parse_args()

    vqvae = PatchTokenizer.from_pretrained(args.tokenizer)
    vqvae.decoder.half()  # the encoder keeps its precision: rounding it would change one token in sixty
    transformer = LlamaGenTransformer.from_pretrained(args.model / "transformer").half()
    parts, index, defaults = {"vqvae": vqvae, "transformer": transformer}, INDEX, DEFAULTS
    if args.drafter:
        head = saved_head(args.drafter)
        parts["draft_model"] = head.half()
        index = INDEX | {"draft_model": [type(head).__module__, type(head).__name__]}
        defaults = drafting_with(head)
    for name, part in parts.items():
        part.register_to_config(_name_or_path=args.out.name)  # not the folder it was trained in
        part.save_pretrained(args.out / name)
    T5EncoderModel.from_pretrained(args.model / "text_encoder").save_pretrained(args.out / "text_encoder")
    AutoTokenizer.from_pretrained(args.model / "tokenizer").save_pretrained(args.out / "tokenizer")
    offered = {"objects": scenes.OBJECT_NAMES, "places": scenes.PLACES, "styles": ["3d"], "examples": EXAMPLES}
    files = {"model_index.json": index, "scenes.json": offered, "method_defaults.json": defaults}
    for name, content in files.items():
        (args.out / name).write_text(json.dumps(content, indent=1) + "\n")
    size = sum(f.stat().st_size for f in args.out.rglob("*") if f.is_file())
    print(f"{args.out}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    command(main)
