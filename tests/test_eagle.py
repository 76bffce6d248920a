"""EAGLE's head: a run with a cache says what whole-picture training sees; the loss is EAGLE's; files are small."""

import pytest
import torch

from pipelines.models.eagle import EagleHead, EagleRun
from pipelines.models.llamagen_family import LlamaGen
from pipelines.primitives.distributions import Warp, guide
from pipelines.primitives.tree import EMPTY
from tests import tiny


GRID = 4


@pytest.fixture(scope="module")
def components():
    return tiny.components(GRID)


def head_over(transformer, **sizes) -> EagleHead:
    """Of random weights: a fresh head adds nothing to what it reads."""
    torch.manual_seed(5)
    head = EagleHead.over(transformer, **sizes)
    for weight in (head.attention_out.weight, head.down.weight):
        torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return head.eval()


def whole(head: EagleHead, hidden: torch.Tensor, picture: list[int]) -> torch.Tensor:
    """[R, rows, V] logits of the training forward over a picture's first tokens; hidden: all rows of the target."""
    tokens = torch.tensor([[0] * head.text_rows + picture]).expand(len(hidden), -1)
    with torch.no_grad():
        return head.head(head(tokens, hidden[:, : tokens.shape[1]]))


def told(components, scale: float, picture: list[int]):
    """A session that has committed `picture`, and all its features [R, rows, D], the last token's not."""
    family = LlamaGen(**{name: part for name, part in components.items() if name != "draft_model"})
    session = family.open(family.condition("a panda", None), scale, Warp(top_k=9), family.layout(32, 32))
    rows = []
    for token in picture:
        rows.append(session.score(EMPTY).hidden)
        session.commit(EMPTY, [], token)
    return session, torch.cat([session.prefix_hidden, *rows[1:]], 1)


def law(logits: torch.Tensor, scale: float, warp: Warp) -> torch.Tensor:
    guided = logits[0] if scale == 1 else guide(logits[0], logits[1], scale)
    return warp.filter(warp.soften(guided))


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("sizes", [{}, {"width": 64}, {"ffn_dim": 16}], ids=["as wide", "twice as wide", "lean"])
def test_a_run_says_what_the_whole_picture_says(components, scale, sizes):
    picture = [3, 1, 4, 1, 5, 9]
    session, hidden = told(components, scale, picture)
    head = head_over(components["transformer"], **sizes)
    run, text = EagleRun(head, session), head.text_rows
    logits = whole(head, hidden, picture)
    first = run.extend([0] * text + picture[:1], hidden[:, : text + 1])
    torch.testing.assert_close(first[0], law(logits[:, text], scale, session.warp), atol=1e-5, rtol=1e-4)
    run.step([7, 8], [0, 0], 1)  # drafted, then forgotten
    later = run.extend(picture[1:], hidden[:, text + 1 : text + 6])
    torch.testing.assert_close(later[0], law(logits[:, text + 5], scale, session.warp), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_guess_reads_its_own_path_only(components, scale):
    """The root's second child has two children, one of which has a child: as if each path were a picture."""
    picture = [3, 1, 4]
    session, hidden = told(components, scale, picture)
    head = head_over(components["transformer"])
    run, text = EagleRun(head, session), head.text_rows
    run.extend([0] * text + picture, hidden)
    laws = {(token,): row for token, row in zip((5, 6), run.step([5, 6], [0, 0], 1))}
    laws |= {(6, token): row for token, row in zip((7, 8), run.step([7, 8], [1, 1], 2))}
    laws |= {(6, 8, 9): run.step([9], [1], 3)[0]}
    for path, found in laws.items():
        features, seen = hidden, list(picture)
        for token in path:  # the guess of the last row stands in for the target's features
            with torch.no_grad():
                tokens = torch.tensor([[0] * text + seen]).expand(len(features), -1)
                features = torch.cat([features, head(tokens, features)[:, -1:]], 1)
            seen.append(token)
        torch.testing.assert_close(
            found, law(whole(head, features, seen)[:, -1], scale, session.warp), atol=1e-5, rtol=1e-4
        )


def test_a_chain_is_a_tree_without_siblings(components):
    session, hidden = told(components, 3.0, [3, 1])
    head = head_over(components["transformer"])
    text, laws = head.text_rows, []
    for others in ([], [9]):
        run = EagleRun(head, session)
        run.extend([0] * text + [3, 1], hidden)
        run.step([5, *others], [0] * (1 + len(others)), 1)
        laws.append(run.step([6], [0], 2)[0])
    torch.testing.assert_close(*laws)


def test_a_layer_as_wide_as_the_targets_is_as_large(components):
    target = components["transformer"]
    assert EagleHead.over(target).down.in_features == target.config.ffn_dim == 64
    assert EagleHead.over(target, ffn_dim=24).down.in_features == 24
    assert EagleHead.over(target, width=64).down.in_features == 256


def test_training_leaves_the_targets_embedding_and_head(components):
    head = EagleHead.over(components["transformer"])
    frozen = {name for name, weight in head.named_parameters() if not weight.requires_grad}
    assert frozen == {"token_embedding.weight", "head.weight"}
    assert torch.equal(head.head.weight, components["transformer"].head.weight)
    assert torch.equal(head.token_embedding.weight, components["transformer"].token_embedding.weight)


def test_a_saved_head_comes_back(components, tmp_path):
    head = head_over(components["transformer"], width=64, ffn_dim=16)
    head.save_pretrained(tmp_path)
    loaded = EagleHead.from_pretrained(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(head.state_dict().values(), loaded.state_dict().values()))


def test_a_width_that_no_head_can_share_is_refused(components):
    assert tiny.refusal(EagleHead, dim=32, width=20, num_heads=2) == (
        "`width` must be a multiple of 4 x `num_heads`, got 20 and 2."
    )
