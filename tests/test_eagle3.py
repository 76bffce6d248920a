"""EAGLE-3's head: a run with a cache says what unrolled training says; every draft of it is exact; files come back."""

import numpy as np
import pytest
import torch
from conftest import Table, assert_same_law
from test_eagle_drafter import TableGuesser
from test_laws import SQUARE, Case
from test_speculative import DRAFTING, NEUTRAL
from torch import nn

import pipelines
from pipelines import ARPipeline, SpeculativePipeline
from pipelines.decoding.eagle_drafter import DynamicDrafter, StaticDrafter
from pipelines.models.eagle3 import Eagle3Head, Eagle3Run
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import LlamaGen, tap_layers
from pipelines.primitives.distributions import Warp, guide
from pipelines.primitives.tree import EMPTY, path_down
from tests import tiny


PICTURE = [3, 1, 4, 1, 5, 9]
TEXT = 3  # rows whose following token is text


@pytest.fixture(scope="module")
def components():
    torch.manual_seed(0)
    target = LlamaGenTransformer(
        vocab_size=tiny.VOCAB,
        dim=32,
        num_layers=4,
        num_heads=2,
        ffn_dim=64,
        cls_token_num=4,
        caption_dim=16,
        grid_size=4,
    ).eval()
    for weight in target.parameters():
        if weight.ndim == 2:
            nn.init.normal_(weight, std=2 * weight.shape[1] ** -0.5)
    return tiny.components() | {"transformer": target, "draft_model": head_over(target)}


def head_over(target: LlamaGenTransformer) -> Eagle3Head:
    """Of random weights: a fresh layer adds nothing to what it reads."""
    head = Eagle3Head.over(target, ffn_dim=16)
    for weight in (head.attention_out.weight, head.down.weight):
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return head.eval()


def begun(components, scale: float):
    """A run of the head beside a session that has committed `PICTURE`, and all its taps [R, rows, 3 D]."""
    family = LlamaGen(**{name: part for name, part in components.items() if name != "draft_model"})
    session = family.open(family.condition("a panda", None), scale, Warp(top_k=9), family.layout(32, 32))
    run, rows = Eagle3Run(components["draft_model"], session), []
    for token in PICTURE:
        rows.append(session.score(EMPTY).taps)
        session.commit(EMPTY, [], token)
    return session, run, torch.cat([session.prefix_taps, *rows[1:]], 1)


def law(logits: torch.Tensor, scale: float, warp: Warp) -> torch.Tensor:
    guided = logits[0] if scale == 1 else guide(logits[0], logits[1], scale)
    return warp.filter(warp.soften(guided))


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_run_says_what_unrolled_training_says(components, scale):
    """Row t of step s has seen the target up to t and guessed on from there: a chain that was right."""
    session, run, taps = begun(components, scale)
    tokens = torch.tensor([[0] * TEXT + PICTURE]).expand(len(taps), -1)
    with torch.no_grad():
        unrolled = components["draft_model"](tokens, taps, 3)
    known = 4  # tokens of the picture that the target has told of
    found = [run.extend([0] * TEXT + PICTURE[:known], taps[:, : TEXT + known])[0]]
    run.step([7, 8], [0, 0], 1)  # drafted, then forgotten
    found = [run.extend([PICTURE[known]], taps[:, TEXT + known : TEXT + known + 1])[0]]
    found.append(run.step([PICTURE[known + 1]], [0], 1)[0])
    for step, one in enumerate(found):
        expected = law(unrolled[step][:, TEXT + known], scale, session.warp)
        torch.testing.assert_close(one, expected, atol=1e-5, rtol=1e-4)


def test_a_guess_reads_its_own_path_only(components):
    """Siblings, one of which has two children: as if each path were a chain."""
    laws = {}
    for level_1, level_2, parents in (([5, 6], [7, 8], [1, 1]), ([6], [8], [0])):
        _, run, taps = begun(components, 3.0)
        run.extend([0] * TEXT + PICTURE, taps)
        first = run.step(level_1, [0] * len(level_1), 1)[level_1.index(6)]
        laws[len(level_1)] = first, run.step(level_2, parents, 2)[level_2.index(8)]
    for tree, alone in zip(*laws.values()):
        torch.testing.assert_close(tree, alone, atol=1e-5, rtol=1e-4)


def test_training_reaches_all_but_the_embedding(components):
    head = Eagle3Head.over(components["transformer"])
    assert {name for name, weight in head.named_parameters() if not weight.requires_grad} == {"token_embedding.weight"}
    assert torch.equal(head.head.weight, components["transformer"].head.weight)
    taps = torch.randn(1, TEXT + 6, 96)
    sum(
        logits[:, TEXT].sum() for logits in components["draft_model"](torch.ones(1, TEXT + 6).long(), taps, 2)
    ).backward()
    silent = [name for name, weight in components["draft_model"].named_parameters() if weight.grad is None]
    components["draft_model"].zero_grad()
    assert silent == ["token_embedding.weight"]


class InnerGuesser(TableGuesser):
    """Insists on the target's inner layers."""

    def __init__(self, session) -> None:
        super().__init__(session)
        session.keep_taps = True

    def extend(self, tokens, features):
        if not self.committed:
            assert torch.equal(features, self.session.prefix_taps) and len(tokens) == Table.PROMPT
            tokens, features = tokens[-1:], features[:, -1:]
        for token, row in zip(tokens, features.unbind(1), strict=True):
            assert torch.equal(row, self.session.table.inner[self.committed][: self.session.rows])
            self.committed += (token,)
        self.contexts = [self.committed]
        return self.laws(self.committed)[0][None]


@pytest.mark.parametrize(
    "make",
    [
        lambda session: StaticDrafter(InnerGuesser(session), session, path_down(2)),
        lambda session: DynamicDrafter(InnerGuesser(session), session, 2, 4, 2),
    ],
    ids=["chain", "dynamic tree"],
)
def test_output_law_is_the_targets(make):
    case = Case(make, SQUARE)
    assert_same_law(case.law(), case.open().joint())


def tokens_of(pipe, **arguments) -> list[int]:
    pipe.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(7)
    return pipe("a panda", generator=generator, output_type="latent", **arguments).traces[0].tokens.tolist()


@pytest.mark.parametrize("name", DRAFTING)
@pytest.mark.parametrize("draft", ["chain", "static", "dynamic"])
def test_temperature_0_with_neutral_settings_is_greedy_autoregression(components, name, draft):
    greedy = {"guidance_scale": 3.0, "temperature": 0.0}
    pipe = getattr(pipelines, name)(**components, settings={"head": "eagle3"})
    alone = tokens_of(ARPipeline(**components), **greedy)
    assert tokens_of(pipe, draft=draft, **greedy, **NEUTRAL[name]) == alone


@pytest.mark.parametrize("name", DRAFTING)
@pytest.mark.parametrize("draft", ["chain", "static", "dynamic"])
def test_guesses_are_drawn_but_those_of_the_likeliest_are_certain(components, name, draft):
    pipe = getattr(pipelines, name)(**components, settings={"head": "eagle3"})
    stream = pipe.stream("a panda", generator=torch.Generator().manual_seed(7), temperature=2.0, draft=draft)
    q = np.concatenate([step.q for step in stream])
    assert stream.trace.complete and stream.trace.nfe < 16
    assert (q == 1).all() if draft == "dynamic" else (q < 1).any()
    assert any(step.path.size for step in stream.trace.steps), "no guess was ever kept"


def test_a_folder_with_such_a_head_comes_back(components, tmp_path):
    built = SpeculativePipeline(**components, settings={"head": "eagle3"})
    built.save_pretrained(tmp_path)
    loaded = SpeculativePipeline.from_pretrained(tmp_path)
    assert tokens_of(loaded) == tokens_of(built)
    assert isinstance(ARPipeline.from_pretrained(tmp_path).draft_model, Eagle3Head)


@pytest.mark.parametrize("name", DRAFTING)
def test_a_head_of_the_other_kind_is_refused(components, name):
    method = getattr(pipelines, name)
    assert tiny.refusal(method, **components) == (
        "`draft_model` must be an EagleHead, which this method guesses with, got a Eagle3Head."
    )
    pipe = method(**tiny.components())
    assert "must be an Eagle3Head" in tiny.refusal(pipe.stream, "a panda", head="eagle3")


@pytest.mark.parametrize(("count", "layers"), [(36, (2, 18, 33)), (7, (2, 3, 4)), (4, (1, 2, 3)), (3, (0, 1, 2))])
def test_taps_are_three_layers_early_middle_and_late(count, layers):
    assert tap_layers(count) == layers
