"""Cached, guided, drafted forwards of LlamaGen against the naive transformer run on each path alone."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from accelerate import cpu_offload
from test_llamagen import ATOL, TINY, make_tiny, naive_hidden, random_masks
from torch import Tensor

from pipelines.models.kv_cache import KVCache
from pipelines.models.llamagen import LlamaGenTransformer
from pipelines.models.llamagen_family import LlamaGen, LlamaGenCondition, LlamaGenSession
from pipelines.models.protocol import Scores
from pipelines.primitives.distributions import Warp
from pipelines.primitives.layout import Layout
from pipelines.primitives.tree import EMPTY, Draft, chain


TOKENS = 16
VOCABULARY = TINY["vocab_size"]
PLAIN = Warp()


def make_condition(model: LlamaGenTransformer, valid: int, seed: int = 0, negative: int = 0) -> LlamaGenCondition:
    """Random text in `valid` rows; `negative` rows of other text in place of the unconditional features."""
    features = torch.randn(2, 6, 12, generator=torch.Generator().manual_seed(seed))
    if negative:
        return LlamaGenCondition(features, random_masks(valid)[0], {}, random_masks(negative)[0])
    features[1] = model.condition.uncond_embedding
    return LlamaGenCondition(features, random_masks(valid)[0])


def open_session(
    model: LlamaGenTransformer, condition: LlamaGenCondition, scale: float, warp=PLAIN
) -> LlamaGenSession:
    family = LlamaGen(model, None, None, None)
    return family.open(condition, scale, warp, family.layout(64, 64))


def random_draft(dice: random.Random, room: int) -> Draft:
    """A tree, often a chain, of at most 7 nodes and of depth `room` at most."""
    parents: list[int] = []
    depth = {-1: 0}
    is_chain = dice.random() < 0.3
    for node in range(dice.randint(0, 7)):
        parent = node - 1 if is_chain else dice.randint(-1, node - 1)
        if depth[parent] == room:
            break
        parents.append(parent)
        depth[node] = depth[parent] + 1
    tokens = [dice.randrange(VOCABULARY) for _ in parents]
    return Draft(tokens, parents, torch.ones(len(parents), VOCABULARY))


class Naive:
    """What `Scores` must be, by a forward of the naive transformer over one path without a cache."""

    def __init__(self, model: LlamaGenTransformer, condition: LlamaGenCondition, scale: float) -> None:
        self.model, self.scale = model, scale
        masks = [condition.mask, condition.mask if condition.negative_mask is None else condition.negative_mask]
        self.text = list(zip(condition.features, masks))[: 2 if scale > 1 else 1]

    def hidden(self, tokens: list[int]) -> Tensor:
        """[R, P + n, D]"""
        return torch.stack([naive_hidden(self.model, *row, torch.tensor(tokens).long()) for row in self.text])

    def laws(self, hidden: Tensor) -> Tensor:
        """[n, V] of rows [R, n, D]."""
        logits = hidden @ self.model.head.weight.T
        guided = logits[0] if len(logits) == 1 else logits[1] + self.scale * (logits[0] - logits[1])
        return guided.softmax(-1)

    def check(self, scores: Scores, draft: Draft, committed: list[int]) -> None:
        for path in draft.paths.tolist():
            rows = [row for row in path if row >= 0]
            hidden = self.hidden(committed + [draft.tokens[row - 1] for row in rows[1:]])[:, -len(rows) :]
            torch.testing.assert_close(scores.hidden[:, rows], hidden, rtol=0, atol=ATOL)
            torch.testing.assert_close(scores.probs[rows], self.laws(hidden), rtol=0, atol=ATOL)


class Run:
    """A session decoded by random drafts, random paths and random tokens, checked at every round."""

    def __init__(self, model: LlamaGenTransformer, condition: LlamaGenCondition, scale: float, seed: int) -> None:
        self.session, self.naive = open_session(model, condition, scale), Naive(model, condition, scale)
        self.dice = random.Random(seed)
        self.committed: list[int] = []

    @torch.no_grad()
    def round(self) -> None:
        draft = random_draft(self.dice, TOKENS - len(self.committed) - 1) if self.committed else EMPTY
        self.naive.check(self.session.score(draft), draft, self.committed)
        path = draft.path(self.dice.randrange(-1, len(draft)))
        token = self.dice.randrange(VOCABULARY)
        self.session.commit(draft, path, token)
        self.committed += [draft.tokens[node] for node in path] + [token]
        assert self.session.length == TINY["cls_token_num"] + len(self.committed) - 1

    def finish(self) -> None:
        while len(self.committed) < TOKENS:
            self.round()


@pytest.mark.parametrize("text_rope", ["zero", "identity"])
@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("negative", [0, 2, 5])
def test_random_trees_equal_plain_forwards(text_rope: str, scale: float, negative: int):
    model = make_tiny(text_rope=text_rope)
    for seed in range(2):
        Run(model, make_condition(model, valid=4, seed=seed, negative=negative), scale, seed).finish()


def test_two_sessions_interleave_over_one_model():
    model = make_tiny()
    runs = [
        Run(model, make_condition(model, valid, seed=valid), scale, valid) for valid, scale in ((2, 3.0), (6, 1.0))
    ]
    for _ in range(4):
        for run in runs:
            run.round()
    for run in runs:
        run.finish()


@torch.no_grad()
def test_steps_of_one_token_equal_the_full_forward():
    model = make_tiny()
    condition = make_condition(model, valid=3)
    tokens = torch.randint(VOCABULARY, (TOKENS,), generator=torch.Generator().manual_seed(0))
    full = model(condition.features, condition.mask.expand(2, -1), tokens.expand(2, -1), tap_layers=(0, 1, 2))
    session = open_session(model, condition, 3.0)
    session.keep_taps = True
    for position, token in enumerate(tokens.tolist()):
        scores = session.score(EMPTY)
        session.commit(EMPTY, [], token)
        row = position + 5
        torch.testing.assert_close(scores.hidden, full.hidden[:, row : row + 1], rtol=0, atol=ATOL)
        assert scores.taps.shape == (2, 1, 96)
        if position:
            continue
        torch.testing.assert_close(session.prefix_hidden, full.hidden[:, :6], rtol=0, atol=ATOL)
        assert torch.equal(session.prefix_hidden[:, -1:], scores.hidden)
        assert torch.equal(session.prefix_taps[:, -1:], scores.taps)


@torch.no_grad()
def test_taps_are_early_middle_and_late_layers_of_the_same_rows():
    model = make_tiny(num_layers=8)
    condition, draft = make_condition(model, valid=3), chain([5, 6, 7], torch.ones(3, VOCABULARY))
    session = open_session(model, condition, 3.0)
    session.keep_taps = True
    session.score(EMPTY)
    session.commit(EMPTY, [], 4)
    tokens = torch.tensor([4, 5, 6, 7, 0]).expand(2, -1)
    full = model(condition.features, condition.mask.expand(2, -1), tokens, tap_layers=(2, 4, 5))
    torch.testing.assert_close(session.score(draft).taps, full.taps[:, 6:], rtol=0, atol=ATOL)


def test_taps_are_left_out_unless_asked_for():
    model = make_tiny()
    session = open_session(model, make_condition(model, valid=3), 1.0)
    assert session.score(EMPTY).taps is None and session.prefix_taps is None


@torch.no_grad()
def test_scoring_twice_without_a_commit_says_the_same():
    model = make_tiny()
    session = open_session(model, make_condition(model, valid=3), 3.0)
    session.score(EMPTY)
    session.commit(EMPTY, [], 4)
    draft = random_draft(random.Random(1), 9)
    first = session.score(draft).probs
    session.score(chain([1, 2], torch.ones(2, VOCABULARY)))
    assert torch.equal(first, session.score(draft).probs)


@torch.no_grad()
def test_padding_leaves_the_cache():
    model = make_tiny()
    session = open_session(model, make_condition(model, valid=2), 3.0)
    session.score(EMPTY)
    session.commit(EMPTY, [], 4)
    assert session.length == 6 and session._cache.length == 2


def test_a_draft_larger_than_the_cache_makes_it_grow():
    model = make_tiny()
    condition = make_condition(model, valid=4)
    run = Run(model, condition, 3.0, seed=0)
    run.round()
    bush = Draft([3] * 300, [-1] * 300, torch.ones(300, VOCABULARY))
    wide = run.session.score(bush)
    assert torch.allclose(wide.probs[1], wide.probs[300], atol=ATOL)
    run.session.commit(bush, [299], 9)
    run.committed += [3, 9]
    run.finish()


@torch.no_grad()
def test_laws_follow_the_warp_and_the_layout():
    model = make_tiny()
    condition, layout = make_condition(model, valid=3), Layout(4, 4, forced={0: 9, 2: 8})
    plain = open_session(model, condition, 3.0).score(EMPTY)
    warp = Warp(temperature=0.7, top_k=5)
    scores = open_session(model, condition, 3.0, warp).score(EMPTY)
    assert torch.equal(plain.probs, plain.guided)
    torch.testing.assert_close(scores.guided, warp.soften(plain.probs.log()))
    assert torch.equal(scores.probs, warp.filter(scores.guided)) and (scores.probs > 0).sum() == 5
    session = LlamaGen(model, None, None, None).open(condition, 3.0, warp, layout)
    assert session.score(EMPTY).probs[0].argmax() == 9 and session.score(EMPTY).probs[0].max() == 1
    session.commit(EMPTY, [], 9)
    probs = session.score(chain([1, 8], torch.ones(2, VOCABULARY))).probs
    assert probs[1, 8] == 1 and probs[0].max() < 1 and probs[2].max() < 1


@torch.no_grad()
def test_bfloat16_sessions_give_float32_laws_near_the_exact_ones():
    model = make_tiny()
    condition = make_condition(model, valid=3)
    draft = random_draft(random.Random(3), 9)

    def laws(dtype: torch.dtype) -> Tensor:
        session = open_session(model.to(dtype), condition, 3.0)
        session.score(EMPTY)
        session.commit(EMPTY, [], 4)
        return session.score(draft).probs

    exact, rounded = laws(torch.float32), laws(torch.bfloat16)
    assert rounded.dtype == torch.float32
    # Guidance at 3 triples the rounding of logits around 4, each good to 8 bits.
    assert (exact - rounded).abs().sum(-1).max() / 2 < 0.1


# Broken twins: each must be found out by the parity above.


def forgets_to_gather(session: LlamaGenSession) -> None:
    keep = session._cache.keep
    session._cache.keep = lambda rows: keep(list(range(len(rows))))


def sees_siblings(session: LlamaGenSession) -> None:
    session._bias = lambda draft: None


def ignores_depth(session: LlamaGenSession) -> None:
    step = session._step
    session._step = lambda draft: step(replace(draft, parents=[-1] * len(draft)))


def keeps_padding(session: LlamaGenSession) -> None:
    session._text = list(range(6))


@pytest.mark.parametrize("broken", [forgets_to_gather, sees_siblings, ignores_depth, keeps_padding])
def test_parity_finds_a_broken_session(broken: Callable[[LlamaGenSession], None]):
    model = make_tiny()
    run = Run(model, make_condition(model, valid=4), 3.0, seed=2)
    broken(run.session)
    with pytest.raises(AssertionError, match="not close"):
        run.finish()


@torch.no_grad()
def test_offloaded_weights_give_the_same_laws():
    model = make_tiny()
    condition, draft = make_condition(model, valid=3), chain([1, 2], torch.ones(2, VOCABULARY))

    def laws() -> Tensor:
        session = open_session(model, condition, 3.0)
        prefill = session.score(EMPTY).probs
        session.commit(EMPTY, [], 4)
        return torch.cat([prefill, session.score(draft).probs])

    loaded = laws()
    cpu_offload(model, torch.device("cpu"))
    assert next(model.parameters()).is_meta, "weights come only while a forward runs"
    assert torch.equal(laws(), loaded)


@torch.no_grad()
def test_every_score_is_one_forward():
    model = make_tiny()
    calls = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    session = open_session(model, make_condition(model, valid=3), 3.0)
    for rounds in range(1, 4):
        session.score(EMPTY)
        session.commit(EMPTY, [], 4)
        assert len(calls) == rounds


def test_places_beyond_the_integers_of_bfloat16_are_kept_exactly():
    cache = KVCache(torch.zeros(1, 2, 1, 1, 300, 1, dtype=torch.bfloat16))
    new = cache.extend(300)[0]
    new[0][:, :, :, 257] = 1
    cache.keep([0, 257])
    assert cache.extend(0)[1][0][0, 0, :, 0].tolist() == [0, 1]


def test_a_cache_keeps_the_rows_asked_for_in_order():
    cache = KVCache(torch.zeros(2, 2, 1, 1, 4, 1))
    new = cache.extend(4)[0]
    for view in new:
        view.copy_(torch.arange(4.0)[:, None].expand_as(view))
    cache.keep([0, 2, 3])
    new, keys, _ = cache.extend(3)
    new[1].fill_(7)
    assert keys[1][0, 0, :, 0].tolist() == [0, 2, 3, 7, 7, 7]
    cache.keep([])
    assert cache.length == 3 and cache.extend(0)[2][0][0, 0, :, 0].tolist() == [0, 2, 3]
