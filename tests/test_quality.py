"""The judge of drawn scenes, and the figures that come from it."""

import itertools
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import components

from benchmarks import figures, quality
from benchmarks.figures import wilson
from benchmarks.record import command
from pipelines import ARPipeline
from pipelines.models.patch_tokenizer import PatchTokenizer
from pipelines.models.scene_classifier import SceneClassifier
from training import scenes
from training.scenes import Scene


OBJECTS, PLACES = ["dog", "cat", "none"], ["grass", "snow"]
SPRITES = scenes.CACHE / "node_modules"


@pytest.fixture
def judge() -> SceneClassifier:
    torch.manual_seed(0)
    return SceneClassifier(OBJECTS, PLACES, widths=(8, 8, 16), features=12).eval()


@pytest.fixture(scope="module")
def pipe() -> ARPipeline:
    return ARPipeline(**components())


def scene(place: int, corner: tuple[int, int], side: int = 32, alpha: float = 1.0) -> Scene:
    """A square sprite with a pattern of its own on noise that the seed `place` decides."""
    pixels = np.random.default_rng(place).random((128, 128, 3))
    window = (slice(corner[0], corner[0] + side), slice(corner[1], corner[1] + side))
    sprite = np.random.default_rng(99).random((side, side, 3))
    pixels[window] = alpha * sprite + (1 - alpha) * pixels[window]
    opaque = np.zeros((128, 128), bool)
    opaque[window] = True
    return Scene((255 * pixels).astype(np.uint8), "dog", str(place), opaque)


def test_a_classifier_gives_logits_for_both_attributes_and_features(judge: SceneClassifier):
    reading = judge(torch.zeros(2, 3, 128, 128))
    assert (reading.objects.shape, reading.places.shape, reading.features.shape) == ((2, 3), (2, 2), (2, 12))


def test_names_are_those_of_the_largest_logits(judge: SceneClassifier):
    reading = judge(torch.randn(4, 3, 32, 32))
    expected = [
        (OBJECTS[i], PLACES[j]) for i, j in zip(reading.objects.argmax(1).tolist(), reading.places.argmax(1).tolist())
    ]
    assert judge.names(reading) == expected


def test_a_reading_does_not_depend_on_the_batch(judge: SceneClassifier):
    images = torch.randn(3, 3, 64, 64)
    assert torch.allclose(judge(images).objects[1:2], judge(images[1:2]).objects, atol=1e-5)


def test_a_saved_classifier_reads_the_same_and_knows_its_names(judge: SceneClassifier, tmp_path: Path):
    images = torch.randn(2, 3, 128, 128)
    judge.save_pretrained(tmp_path)
    loaded = SceneClassifier.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(images).objects, judge(images).objects)
    assert loaded.names(loaded(images)) == judge.names(judge(images))


def test_the_classifier_of_all_names_is_small():
    full = SceneClassifier([*scenes.OBJECT_NAMES, "none"], list(scenes.PLACE_NAMES))
    assert sum(weight.numel() for weight in full.parameters()) <= 600_000
    assert full.config.features <= 64


# Newcombe 1998, table I, method 3, rounded to four digits there.
@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_intervals_are_the_known_ones(hits: int, n: int, low: float, high: float):
    share = wilson(hits, n)
    assert (share.low, share.high) == pytest.approx((low, high), abs=6e-5)
    assert share.share == hits / n and share.n == n


def test_fidelity_is_the_mean_over_stated_attributes():
    asked = [("dog", "snow"), ("cat", "grass"), ("dog", "grass"), ("cat", "snow")]
    seen = [("dog", "snow"), ("cat", "snow"), ("cat", "grass"), ("dog", "grass")]
    shares = figures.read_back(asked, seen)
    assert {part: share.share for part, share in shares.items()} == {"object": 0.5, "place": 0.5, "fidelity": 0.5}
    assert {share.n for share in shares.values()} == {4}


def test_interior_tokens_of_a_patch_local_tokenizer_repeat_on_every_place():
    torch.manual_seed(0)
    assert figures.repeated(PatchTokenizer(), scene(1, (16, 24)), scene(2, (40, 8))) == (4, 4)


def test_a_sprite_that_lets_the_place_through_does_not_repeat():
    torch.manual_seed(0)
    same, total = figures.repeated(PatchTokenizer(), scene(1, (16, 24), alpha=0.3), scene(2, (40, 8), alpha=0.3))
    assert total == 4 and same < total


def test_only_tokens_without_edge_are_interior():
    inside = figures.interior(scene(1, (16, 24)), 8)
    assert np.argwhere(inside).tolist() == [[3, 4], [3, 5], [4, 4], [4, 5]]


@pytest.mark.parametrize("other", [scene(2, (44, 8)), scene(2, (40, 8), side=40)])
def test_sprites_that_differ_are_not_compared(other: Scene):
    with pytest.raises(ValueError, match="`second`"):
        figures.repeated(PatchTokenizer(), scene(1, (16, 24)), other)


def test_teacher_forced_entropies_are_those_of_the_run_itself(pipe: ARPipeline):
    stream = pipe.stream("a panda on snow", temperature=1.0, top_k=0, generator=torch.Generator().manual_seed(1))
    drawn = np.array([step.entropy[0] for step in stream])
    forced = figures.entropies(pipe, "a panda on snow", stream.trace.tokens.tolist())
    # Cached and joint forwards differ by rounding.
    assert np.abs(forced.numpy() - drawn).max() < 1e-4


def test_psnr_is_that_of_the_definition():
    true = torch.zeros(2, 3, 8, 8)
    assert figures.psnr(true + 0.2, true) == pytest.approx(10 * math.log10(4 / 0.04), abs=1e-4)


def test_six_percent_of_the_pairs_are_held_out_and_every_object_keeps_its_places():
    held = [pair for pair in itertools.product(scenes.OBJECT_NAMES, scenes.PLACE_NAMES) if scenes.is_held_out(*pair)]
    assert 0.05 < len(held) / (len(scenes.OBJECT_NAMES) * len(scenes.PLACE_NAMES)) < 0.07
    assert max([name for name, _ in held].count(name) for name in scenes.OBJECT_NAMES) <= 2


def test_tasks_take_turns_between_seen_and_held_out_pairs_and_grow_at_their_end():
    many = quality.tasks(300, seed=3)
    assert quality.tasks(40, seed=3) == many[:40]
    assert [task.group for task in many] == [*quality.GROUPS] * 150
    assert {task.name for task in many if task.group == "seen"} == set(scenes.OBJECT_NAMES)
    assert many[0].prompt == f"a {many[0].name} {scenes.PLACES[many[0].place]}"


def test_drawn_pictures_are_kept_and_not_drawn_again(pipe: ARPipeline, tmp_path: Path):
    keep = tmp_path / "drawn.jsonl"
    asked = [quality.Task(index, name, "snow") for index, name in enumerate(("cat", "panda", "cat"))]
    first = quality.draw(pipe, asked[:2], keep, seed=5)
    before = keep.read_text()
    every = quality.draw(pipe, asked, keep, seed=5)
    assert keep.read_text().startswith(before) and keep.read_text().count("\n") == 3
    assert torch.equal(every[:2], first)
    alone = pipe("a cat in the snow", generator=torch.Generator().manual_seed(7), output_type="latent").images
    assert torch.equal(every[2:], alone)


def test_other_weights_and_other_seeds_are_kept_apart(pipe: ARPipeline):
    other = ARPipeline(**components(seed=1))
    assert len({quality.drawing_id(pipe, 0), quality.drawing_id(pipe, 1), quality.drawing_id(other, 0)}) == 3


def test_a_sheet_holds_pictures_and_nothing_else(tmp_path: Path):
    images = torch.linspace(-1, 1, 9)[:, None, None, None].expand(9, 3, 4, 4)
    quality.write_sheet(images, tmp_path / "sheet.png")
    pixels = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert pixels.shape == (8, 32, 3)
    assert pixels[0, ::4, 0].tolist() == [0, 32, 64, 96, 128, 159, 191, 223]
    assert (pixels[4:, :4] == 255).all() and (pixels[4:, 4:] == 255).all()


def test_goals_are_reached_from_the_right_side():
    values = {goal.figure: goal.ship for goal in quality.GOALS}
    assert {row["reached"] for row in quality.compared(values)} <= {"ship", "aim"}
    worse = {goal.figure: goal.ship * (1.01 if goal.is_limit else 0.99) for goal in quality.GOALS}
    assert {row["reached"] for row in quality.compared(worse)} == {"neither"}


def test_a_classifier_that_misreads_scenes_is_not_fit_to_judge():
    good = {"object": wilson(99, 100), "place": wilson(99, 100)}
    assert quality.is_fit({"scenes": good, "reconstructions": good})
    assert not quality.is_fit({"scenes": good | {"object": wilson(98, 100)}, "reconstructions": good})
    assert not quality.is_fit({"scenes": good, "reconstructions": good | {"object": wilson(95, 100)}})


def test_the_shipped_classifier_stands_alone_and_is_small():
    judge = SceneClassifier.from_pretrained(quality.JUDGE)
    assert judge.config.object_names == [*scenes.OBJECT_NAMES, "none"]
    assert judge.config.place_names == list(scenes.PLACE_NAMES)
    assert sum(path.stat().st_size for path in quality.JUDGE.iterdir()) < 1.3e6
    assert "/" not in json.loads((quality.JUDGE / "config.json").read_text())["_name_or_path"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"objects": ["dog"], "styles": 1}'])
def test_a_foreign_scenes_file_is_named(tmp_path: Path, monkeypatch, capsys, content: str):
    (tmp_path / "scenes.json").write_text(content)
    assert_refused(
        ["--model", str(tmp_path)], f"`{tmp_path / 'scenes.json'}` must be a JSON object", monkeypatch, capsys
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/nowhere"], "`--model` must be a folder with a scenes.json"),
        (["--images", "1"], "`--images` must be at least 2"),
        (["--seed", "-1"], "`--seed` must be at least 0"),
        (["--judge", "/nowhere"], "`--judge` must be the folder of a saved classifier"),
        (["--out", "/"], "`--out` must be a file that can be written"),
        (["--keep", "/dev/null"], "`--keep` must be a file that can be written"),
        (["--sheet", "sheet.xyz"], "`--sheet` must be a file that ends in .png"),
    ],
)
def test_bad_input_is_refused_before_the_work(tmp_path: Path, monkeypatch, capsys, arguments: list[str], message: str):
    lists = {"objects": ["dog"], "styles": ["3d"]}
    (tmp_path / "scenes.json").write_text(json.dumps(lists))
    free = ["--model", str(tmp_path), "--out", str(tmp_path / "out.json"), "--keep", str(tmp_path / "kept")]
    assert_refused([*free, *arguments], message, monkeypatch, capsys)


def assert_refused(arguments: list[str], message: str, monkeypatch, capsys) -> None:
    """The command ends with status 2 and one line on stderr, before it loads anything."""
    monkeypatch.delattr(quality, "measure")
    monkeypatch.setattr(sys, "argv", ["quality", *arguments])
    with pytest.raises(SystemExit) as ended:
        command(quality.main)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and message in said and said.count("\n") == 1, said


@pytest.mark.slow
@pytest.mark.skipif(not SPRITES.is_dir(), reason="the sprites have not been fetched; training.scenes does it")
def test_the_shipped_classifier_is_fit_to_judge():
    judge = SceneClassifier.from_pretrained(quality.JUDGE).float().eval()
    tokenizer = PatchTokenizer.from_pretrained(quality.EMBEDDED / "vqvae").float().eval()
    found = figures.fresh_scenes(400, np.random.default_rng(2024))
    names, fresh = [(scene.name, scene.place) for scene in found], figures.to_images(found)
    readings = {"scenes": fresh, "reconstructions": figures.reconstruct(tokenizer, fresh)}
    shares = {kind: figures.read_back(names, figures.read(judge, images)) for kind, images in readings.items()}
    assert quality.is_fit(shares), shares
