"""Single figures of a scene model: shares with intervals, its tokenizer's fidelity, its uncertainty, its judge."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipelines.base import ARImagePipeline
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.models.scene_classifier import SceneClassifier
from pipelines.primitives.distributions import Warp
from pipelines.primitives.tree import EMPTY, chain
from training import scenes
from training.scenes import OBJECT_NAMES, PLACE_NAMES, Scene


NORMAL_95 = 1.959964  # two-sided 95 % quantile of the normal law
BATCH = 32  # pictures that go through a network together


@dataclass(frozen=True)
class Share:
    """A share of n with its 95 % Wilson interval."""

    share: float
    low: float
    high: float
    n: int


def wilson(hits: float, n: int) -> Share:
    """Wilson 1927. Where hits are means of several attributes of a picture, n pictures, it is on the wide side."""
    assert 0 <= hits <= n and n > 0, f"{hits} of {n} is not a share"
    share, square = hits / n, NORMAL_95**2 / n
    middle = (share + square / 2) / (1 + square)
    half = math.sqrt(square * (share * (1 - share) + square / 4)) / (1 + square)
    return Share(share, max(0.0, middle - half), min(1.0, middle + half), n)


def to_images(found: list[Scene]) -> Tensor:
    """[B, 3, SIDE, SIDE] float32 in [-1, 1]."""
    pixels = np.stack([scene.pixels for scene in found])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 127.5 - 1


def fresh_scenes(count: int, rng: np.random.Generator) -> list[Scene]:
    """Scenes of one object each, object and place independent: held-out pairs are among them."""
    return [scenes.draw(str(rng.choice(OBJECT_NAMES)), str(rng.choice(PLACE_NAMES)), rng) for _ in range(count)]


@torch.inference_mode()
def reconstruct(tokenizer: PatchTokenizer, images: Tensor) -> Tensor:
    """Pictures [B, 3, H, W] after encoding and decoding."""
    return torch.cat([tokenizer.decode(tokenizer.encode(part)) for part in images.split(BATCH)])


def psnr(made: Tensor, true: Tensor) -> float:
    """Peak signal-to-noise ratio in dB, the mean over pictures [B, 3, H, W] in [-1, 1]."""
    return float((10 * torch.log10(4 / (made - true).square().mean((1, 2, 3)))).mean())


@torch.inference_mode()
def read(judge: SceneClassifier, images: Tensor) -> list[tuple[str, str]]:
    """Object and place that the judge sees in each picture [B, 3, H, W]."""
    return [names for part in images.split(BATCH) for names in judge.names(judge(part))]


def read_back(asked: list[tuple[str, str]], seen: list[tuple[str, str]]) -> dict[str, Share]:
    """Shares of pictures whose object, whose place was read as asked, and prompt fidelity: the mean over both."""
    objects = sum(a[0] == b[0] for a, b in zip(asked, seen, strict=True))
    places = sum(a[1] == b[1] for a, b in zip(asked, seen, strict=True))
    n = len(asked)
    return {"object": wilson(objects, n), "place": wilson(places, n), "fidelity": wilson((objects + places) / 2, n)}


def cells(mask: np.ndarray, patch: int) -> np.ndarray:
    """[h, w, patch * patch] pixels of each token, of a mask [H, W]."""
    h, w = mask.shape[0] // patch, mask.shape[1] // patch
    return mask.reshape(h, patch, w, patch).swapaxes(1, 2).reshape(h, w, -1)


def interior(scene: Scene, patch: int) -> np.ndarray:
    """[h, w] bool: tokens that see nothing but the sprite. The outermost pixel of a sprite is half transparent."""
    opaque = np.pad(scene.opaque, 1)
    height, width = scene.opaque.shape
    shifts = [opaque[y : y + height, x : x + width] for y in range(3) for x in range(3)]
    return cells(np.all(shifts, axis=0), patch).all(-1)


def corner(scene: Scene) -> np.ndarray:
    """[2]: first row and first column that the sprite reaches."""
    return np.array([scene.opaque.any(1).argmax(), scene.opaque.any(0).argmax()])


@torch.inference_mode()
def repeated(tokenizer: PatchTokenizer, first: Scene, second: Scene) -> tuple[int, int]:
    """The same sprite in two scenes: interior tokens that stay the same, and how many there are.

    Raises ValueError where the sprites differ in shape, or stand differently on the token grid.
    """
    patch = tokenizer.config.patch_size
    shift, off = np.divmod(corner(second) - corner(first), patch)
    inside = interior(first, patch)
    rows, columns = np.nonzero(inside)
    if off.any() or not np.array_equal(np.argwhere(interior(second, patch)), np.argwhere(inside) + shift):
        raise ValueError("`second` must show the sprite of `first`, moved by whole tokens; it shows another outline.")
    before, after = tokenizer.encode(to_images([first, second])).numpy()
    same = before[rows, columns] == after[rows + shift[0], columns + shift[1]]
    return int(same.sum()), len(same)


def twins(rng: np.random.Generator) -> tuple[Scene, Scene]:
    """One sprite, equally large, on two places at two grid positions."""
    name = str(rng.choice(OBJECT_NAMES))
    places = rng.choice(PLACE_NAMES, 2, replace=False)
    first = scenes.draw(name, str(places[0]), rng)
    while True:
        second = scenes.draw(name, str(places[1]), rng)
        if second.opaque.sum() == first.opaque.sum() and (corner(second) != corner(first)).any():
            return first, second


def repeatability(tokenizer: PatchTokenizer, count: int, rng: np.random.Generator) -> Share:
    """Share of interior tokens that stay the same over `count` pairs of scenes."""
    same, total = np.sum([repeated(tokenizer, *twins(rng)) for _ in range(count)], axis=0)
    return wilson(int(same), int(total))


@torch.inference_mode()
def forced_laws(pipe: ARImagePipeline, prompt: str, tokens: list[int]) -> Tensor:
    """[T, V] law at each position of a picture given its own tokens before it (teacher forcing).

    At temperature 1 and the model's default guidance, before top-k and top-p.
    """
    condition = pipe.encode_prompt(prompt)
    session = pipe.model.open(condition, pipe.sampling.guidance_scale, Warp(), pipe.layout())
    start = session.score(EMPTY).guided  # [1, V]
    session.commit(EMPTY, [], tokens[0])
    rest = session.score(chain(tokens[1:], start.expand(len(tokens) - 1, -1))).guided[:-1]
    return torch.cat([start, rest])


def entropies(pipe: ARImagePipeline, prompt: str, tokens: list[int]) -> Tensor:
    """[T] nats: entropy of each of `forced_laws`."""
    return torch.special.entr(forced_laws(pipe, prompt, tokens)).sum(-1)


def place_entropy(pipe: ARImagePipeline, tokenizer: PatchTokenizer, found: list[Scene]) -> dict[str, float]:
    """Mean entropy in nats of the squares that the object leaves free, place by place, and of "all" such squares."""
    patch = tokenizer.config.patch_size
    free: dict[str, list[Tensor]] = {}
    for scene in found:
        tokens = tokenizer.encode(to_images([scene])).flatten().tolist()
        bare = ~cells(scene.opaque, patch).any(-1).ravel()
        nats = entropies(pipe, f"a {scene.name} {scenes.PLACES[scene.place]}", tokens).cpu()
        free.setdefault(scene.place, []).append(nats[torch.from_numpy(bare)])
    squares = {place: torch.cat(values) for place, values in sorted(free.items())}
    return {"all": float(torch.cat(list(squares.values())).mean())} | {
        place: float(values.mean()) for place, values in squares.items()
    }
