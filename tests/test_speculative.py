"""Speculative decoding with a head, as a pipeline: what it needs, what may be set, whose law it follows."""

import pytest
import torch

import pipelines
from pipelines.models.eagle import EagleHead
from pipelines.pipeline_speculative import DraftSettings, SpeculativePipeline
from pipelines.primitives.tree import STATIC_TREES
from tests import tiny


PROMPT = "a panda on snow"
DRAFTING = [name for name in pipelines.METHODS if getattr(pipelines, name).needs_draft_model]
DRAFTS = [
    {"draft": "chain", "length": 1},
    {"draft": "chain", "length": 8},
    {"draft": "static", "tree": 57},
    {"draft": "static", "tree": [[0], [1], [0, 0]]},
    {"draft": "dynamic", "tree_nodes": 64, "tree_width": 10},
]
NEUTRAL = {
    "SpeculativePipeline": {},
    "LanternPipeline": {"delta": 0.0},
    "LanternPlusPlusPipeline": {"lam": 1.0},
    "UniformRSDPipeline": {"delta": 1.0},
    "CoolSDPipeline": {"delta": 1.0, "nu": 0.0},
    "CascadePipeline": {"delta": 0.0},
}


@pytest.fixture(scope="module")
def components():
    return tiny.components()


def trace(pipe, seed: int = 7, **arguments):
    return list_of_steps(pipe.stream(PROMPT, generator=torch.Generator().manual_seed(seed), **arguments))


def list_of_steps(stream):
    for _ in stream:
        pass
    return stream.trace


@pytest.mark.parametrize("name", DRAFTING)
@pytest.mark.parametrize("draft", DRAFTS, ids=str)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_draft_draws_a_whole_picture(components, name, draft, temperature):
    found = trace(getattr(pipelines, name)(**components), guidance_scale=3.0, temperature=temperature, **draft)
    assert found.complete and found.layout.length == 16
    assert all(step.draft_calls for step in found.steps[1:-1])
    for step in found.steps:
        deepest = {"chain": draft.get("length"), "static": 5, "dynamic": 5}[draft["draft"]]
        assert len(step.path) <= min(deepest, 15 - step.start)


@pytest.mark.parametrize("name", DRAFTING)
def test_temperature_0_with_neutral_settings_is_greedy_autoregression(components, name):
    greedy = {"guidance_scale": 3.0, "temperature": 0.0}
    alone = trace(pipelines.ARPipeline(**components), **greedy).tokens.tolist()
    pipe = getattr(pipelines, name)(**components)
    for draft in DRAFTS[1::2] + DRAFTS[-1:]:
        assert trace(pipe, **greedy, **draft, **NEUTRAL[name]).tokens.tolist() == alone, draft


@pytest.mark.parametrize("name", DRAFTING)
def test_without_a_fitting_draft_model_it_says_so(components, name):
    method, target = getattr(pipelines, name), components["transformer"]
    message = tiny.refusal(method, **components | {"draft_model": None})
    assert message == "`draft_model` must be an EagleHead, which this method guesses with, got none."
    assert "got a LlamaGenTransformer" in tiny.refusal(method, **components | {"draft_model": target})
    other = EagleHead(vocab_size=16, dim=32, num_heads=2, cls_token_num=4, grid_size=4)
    assert tiny.refusal(method, **components | {"draft_model": other}) == (
        "`draft_model` must have the `vocab_size` of `transformer`, 32, got 16."
    )


def test_a_folder_without_a_draft_model_is_refused(components, tmp_path):
    pipelines.ARPipeline(**components | {"draft_model": None}).save_pretrained(tmp_path)
    assert tiny.refusal(SpeculativePipeline.from_pretrained, tmp_path) == (
        f"`{tmp_path}` cannot be loaded: `draft_model` must be an EagleHead, which this method guesses with, got none."
    )


def test_a_tree_is_named_or_drawn_by_hand():
    settings = DraftSettings(draft="static", tree=[[0], (0, 0), [1]])
    assert settings.tree == [[0], [0, 0], [1]] == settings.to_dict()["tree"]
    assert settings.drawn_tree.parents == [-1, -1, 0] and settings.depth == 2
    assert DraftSettings(draft="static", tree=25).drawn_tree is STATIC_TREES[25]
    assert DraftSettings(draft="chain", length=3).drawn_tree.parents == [-1, 0, 1]
    assert DraftSettings(draft="dynamic", length=7).depth == 7


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        (7, "`tree` must be one of 6, 10, 15, 25, 57 or a list of paths of child ranks, got 7."),
        ("15", "`tree` must be one of 6, 10, 15, 25, 57 or a list of paths of child ranks, got '15'."),
        ([0, 1], "`tree` must be a list of paths such as [[0], [1], [0, 0]], got [0, 1]."),
        ([["0"]], "`tree` must be a list of paths such as [[0], [1], [0, 0]], got [['0']]."),
        ([[1]], "`tree` must hold [0] too, since it holds [1]."),
        ([], "`tree` must name every node once and at least one, got []."),
        ([[rank] for rank in range(65)], "`tree` must have at most 64 nodes, got 65."),
    ],
)
def test_what_is_no_tree_is_refused(tree, sentence):
    assert tiny.refusal(DraftSettings, tree=tree) == sentence
