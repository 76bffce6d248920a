"""Draw the pictures the embedded model learns: one emoji on one textured background, with its caption.

Everything is snapped to the 8-pixel token grid, so that the same sprite always gives the same tokens.
"""

import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image


SIDE = 128  # pixels of a picture
GRID = 8  # pixels of a token
FIELD = 1024  # pixels of a background field; fields tile
SIZE = 96  # pixels of a sprite
TOPS = (16, 24)  # pixels above a sprite
LEFTS = (8, 16, 24)  # pixels to the left of a sprite
CACHE = Path.home() / ".cache" / "draftboard"
SPRITES = "@lobehub/fluent-emoji-3d@1.1.0"

OBJECTS = {  # name -> code point of its emoji
    "dog": 0x1F436, "cat": 0x1F431, "rabbit": 0x1F430, "fox": 0x1F98A, "bear": 0x1F43B, "panda": 0x1F43C,
    "koala": 0x1F428, "tiger": 0x1F42F, "lion": 0x1F981, "cow": 0x1F42E, "pig": 0x1F437, "frog": 0x1F438,
    "monkey": 0x1F435, "chicken": 0x1F414, "penguin": 0x1F427, "owl": 0x1F989, "duck": 0x1F986, "unicorn": 0x1F984,
    "elephant": 0x1F418, "turtle": 0x1F422, "octopus": 0x1F419, "fish": 0x1F420, "whale": 0x1F433, "crab": 0x1F980,
    "butterfly": 0x1F98B, "ladybug": 0x1F41E, "snail": 0x1F40C, "mouse": 0x1F42D, "apple": 0x1F34E, "pear": 0x1F350,
    "orange": 0x1F34A, "lemon": 0x1F34B, "banana": 0x1F34C, "watermelon": 0x1F349, "grapes": 0x1F347,
    "strawberry": 0x1F353, "cherries": 0x1F352, "pineapple": 0x1F34D, "carrot": 0x1F955, "mushroom": 0x1F344,
    "hamburger": 0x1F354, "pizza": 0x1F355, "doughnut": 0x1F369, "cookie": 0x1F36A, "cake": 0x1F382,
    "cupcake": 0x1F9C1, "sunflower": 0x1F33B, "cactus": 0x1F335, "tree": 0x1F333, "car": 0x1F697, "taxi": 0x1F695,
    "bus": 0x1F68C, "rocket": 0x1F680, "airplane": 0x2708, "balloon": 0x1F388, "snowman": 0x26C4, "house": 0x1F3E0,
    "basketball": 0x1F3C0, "gift": 0x1F381, "crown": 0x1F451, "pumpkin": 0x1F383, "star": 0x2B50, "robot": 0x1F916,
    "ghost": 0x1F47B,
}  # fmt: skip

PLACES = {  # name -> how a caption says it
    "grass": "on grass", "sand": "on sand", "snow": "in the snow", "water": "on the water",
    "night": "in the night sky", "sky": "in the blue sky", "sunset": "at sunset", "brick": "by a brick wall",
    "wood": "on a wooden table", "stone": "on stones", "forest": "in the forest",
    "red": "on a red background", "yellow": "on a yellow background", "pink": "on a pink background",
    "purple": "on a purple background", "white": "on a white background",
}  # fmt: skip
PLAIN = {"red": (214, 64, 60), "yellow": (246, 210, 86), "pink": (246, 160, 190), "purple": (140, 96, 190),
         "white": (238, 236, 232)}  # fmt: skip
GROUND = ("grass", "sand", "snow", "wood", "stone", *PLAIN)  # places where a sprite throws a shadow

OBJECT_NAMES = tuple(OBJECTS)
PLACE_NAMES = tuple(PLACES)


def is_held_out(name: str, place: str) -> bool:
    """Whether this pair (6 % of all) is kept out of training, to see if the model can combine."""
    return (OBJECT_NAMES.index(name) * 7 + PLACE_NAMES.index(place) * 5) % 17 == 0


@dataclass(frozen=True)
class Scene:
    pixels: np.ndarray  # [SIDE, SIDE, 3] uint8
    name: str | None  # object, None for an empty place
    place: str
    opaque: np.ndarray  # [SIDE, SIDE] bool: where the sprite covers the place


@functools.cache
def sprite(name: str, size: int) -> np.ndarray:
    """[size, size, 4] float32 in [0, 1], colour premultiplied by alpha. Fetches the sprites on first use."""
    code = f"{OBJECTS[name]:04x}"
    folder = CACHE / "node_modules" / "@lobehub" / "fluent-emoji-3d" / "assets"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), SPRITES], check=True)
    path = next(p for p in (folder / f"{code}.webp", folder / f"{code}-fe0f.webp") if p.is_file())
    rgba = np.asarray(Image.open(path).convert("RGBA"), np.float32) / 255
    rgba[..., :3] *= rgba[..., 3:]
    bands = [Image.fromarray(rgba[..., i]).resize((size, size), Image.Resampling.BOX) for i in range(4)]
    return np.clip(np.stack([np.asarray(b) for b in bands], -1), 0, 1)


def noise(seed: int, scale_x: float, scale_y: float) -> np.ndarray:
    """[FIELD, FIELD] smooth tileable noise, unit variance, details no finer than the two scales in pixels."""
    white = np.fft.rfft2(np.random.default_rng(seed).standard_normal((FIELD, FIELD)))
    fy = np.fft.fftfreq(FIELD)[:, None]
    fx = np.fft.rfftfreq(FIELD)[None, :]
    smooth = np.fft.irfft2(white * np.exp(-2 * ((fx * scale_x) ** 2 + (fy * scale_y) ** 2) * np.pi), (FIELD, FIELD))
    return (smooth / smooth.std()).astype(np.float32)


def blend(low: tuple, high: tuple, amount: np.ndarray) -> np.ndarray:
    """Colours between low and high, amount in [0, 1]. [..., 3] float32 of 0-255."""
    a = np.clip(amount, 0, 1)[..., None]
    return np.asarray(low, np.float32) * (1 - a) + np.asarray(high, np.float32) * a


def bricks() -> np.ndarray:
    """[FIELD, FIELD, 3] bricks of 32 x 16 pixels, every second row shifted by half a brick."""
    y, x = np.mgrid[:FIELD, :FIELD]
    row = y // 16
    column = (x + 16 * (row % 2)) // 32 % (FIELD // 32)
    tint = np.random.default_rng(7).random((FIELD // 16, FIELD // 32)).astype(np.float32)[row, column]
    field = blend((142, 60, 44), (204, 106, 78), 0.2 + 0.6 * tint + 0.2 * noise(16, 9, 8))
    mortar = (y % 16 < 2) | ((x + 16 * (row % 2)) % 32 < 2)
    field[mortar] = (206, 196, 184)
    return field


def planks() -> np.ndarray:
    """[FIELD, FIELD, 3] wooden boards 32 pixels high with long grain."""
    y = np.mgrid[:FIELD, :FIELD][0]
    tint = np.random.default_rng(8).random(FIELD // 32).astype(np.float32)[y // 32]
    field = blend((150, 98, 54), (206, 150, 96), 0.5 * tint + 0.25 + 0.22 * noise(9, 30, 8))
    field[y % 32 < 2] = (104, 66, 38)
    return field


def stars() -> np.ndarray:
    """[FIELD, FIELD, 3] dark sky with soft stars, at most one in a token."""
    rng = np.random.default_rng(10)
    light = np.zeros((FIELD, FIELD), np.float32)
    y, x = np.mgrid[:8, :8]
    for row, column in zip(*np.nonzero(rng.random((FIELD // 8, FIELD // 8)) < 0.09)):
        cy, cx = rng.integers(3, 5, 2)
        spot = np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / rng.choice([1.0, 2.2]))
        light[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = spot
    return blend((18, 24, 62), (40, 44, 100), 0.45 + 0.4 * noise(11, 14, 11)) + 190 * light[..., None]


@functools.cache
def field(place: str) -> np.ndarray:
    """[FIELD, FIELD, 3] float32 background of a place, tileable."""
    if place in PLAIN:
        return np.asarray(PLAIN[place], np.float32) + 20 * noise(20, 11, 10)[..., None]
    cobble = np.maximum(noise(12, 13, 11), noise(13, 13, 11))
    makers = {
        "grass": lambda: blend((56, 120, 44), (140, 192, 78), 0.5 + 0.26 * noise(1, 7, 14) + 0.1 * noise(2, 40, 40)),
        "sand": lambda: blend((206, 172, 116), (240, 216, 164), 0.5 + 0.36 * noise(3, 17, 8)),
        "snow": lambda: blend((200, 216, 236), (250, 252, 255), 0.58 + 0.36 * noise(4, 14, 10)),
        "water": lambda: blend((34, 98, 172), (112, 184, 226), 0.45 + 0.33 * noise(5, 22, 7)),
        "sky": lambda: blend((104, 172, 236), (246, 250, 255), 0.8 * np.clip(noise(6, 22, 12) + 0.1, 0, 1.25)),
        "sunset": lambda: np.zeros((FIELD, FIELD, 3), np.float32) + 21 * noise(14, 17, 9)[..., None],
        "forest": lambda: blend((22, 58, 34), (74, 128, 60), 0.42 + 0.25 * noise(15, 12, 12)),
        "stone": lambda: blend((106, 108, 114), (182, 182, 184), 0.3 + 0.24 * cobble),
        "night": stars, "brick": bricks, "wood": planks,
    }  # fmt: skip
    return makers[place]().astype(np.float32)


def background(place: str, rng: np.random.Generator) -> np.ndarray:
    """[SIDE, SIDE, 3] float32 crop of a place, its corner on the token grid."""
    step = 32 if place in ("brick", "wood") else GRID
    y, x = rng.integers(0, FIELD // step, 2) * step
    rows, columns = (np.arange(SIDE) + y) % FIELD, (np.arange(SIDE) + x) % FIELD
    crop = field(place)[rows[:, None], columns[None, :]].copy()
    down = ((np.arange(SIDE) + 0.5) / SIDE).astype(np.float32)
    if place == "sunset":
        crop += blend((92, 60, 140), (255, 168, 84), 1.25 * down)[:, None]
    elif place in ("sky", "water", "night", "snow"):
        crop += (18 * (down - 0.5))[:, None, None]
    return crop


def shade(picture: np.ndarray, top: int, left: int, size: int) -> None:
    """Darken the ground under a sprite, in place."""
    y, x = np.mgrid[:SIDE, :SIDE]
    across = (x - left - size / 2 + 0.5) / (0.42 * size)
    along = (y - top - 0.95 * size) / (0.09 * size)
    picture *= (1 - 0.38 * np.clip(1.25 - across**2 - along**2, 0, 1))[..., None]


def draw(name: str | None, place: str, rng: np.random.Generator) -> Scene:
    """One scene: a random crop of the place, the object at one of six grid positions near the middle."""
    picture = background(place, rng)
    opaque = np.zeros((SIDE, SIDE), bool)
    if name is not None:
        size, top, left = SIZE, int(rng.choice(TOPS)), int(rng.choice(LEFTS))
        if place in GROUND:
            shade(picture, top, left, size)
        rgba = sprite(name, size)
        window = picture[top : top + size, left : left + size]
        window *= 1 - rgba[..., 3:]
        window += 255 * rgba[..., :3]
        opaque[top : top + size, left : left + size] = rgba[..., 3] > 0.5
    return Scene(np.clip(picture + 0.5, 0, 255).astype(np.uint8), name, place, opaque)


def caption(scene: Scene, rng: np.random.Generator) -> str:
    """Words for a scene: usually object and place, at times one of them alone or the place first."""
    place = PLACES[scene.place]
    if scene.name is None:
        return place
    kind = rng.random()
    if kind < 0.06:
        return f"a {scene.name}"
    if kind < 0.25:
        return f"{place}, a {scene.name}"
    return f"a {scene.name} {place}"


def sample(rng: np.random.Generator, held_out: bool = False) -> Scene:
    """A random scene: of the training pairs, 3 % without object, or of the held-out pairs alone."""
    if not held_out and rng.random() < 0.03:
        return draw(None, str(rng.choice(PLACE_NAMES)), rng)
    while True:
        name, place = str(rng.choice(OBJECT_NAMES)), str(rng.choice(PLACE_NAMES))
        if is_held_out(name, place) == held_out:
            return draw(name, place, rng)
