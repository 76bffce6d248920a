"""LlamaGen's transformer against a naive one: complex rotation, a loop over rows and heads, a padded mask."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.models.llamagen import SIZES, LlamaGenTransformer


ATOL = 1e-5
TINY = dict(
    vocab_size=50, dim=32, num_layers=3, num_heads=2, ffn_dim=48, cls_token_num=6, caption_dim=12, grid_size=4
)  # fmt: skip

PUBLISHED_MILLIONS = {
    "B": 111, "L": 343, "XL": 775, "XXL": 1400, "XXXL": 3900, "1B": 1200, "3B": 3100, "7B": 6600
}  # fmt: skip


def make_tiny(seed: int = 0, **changes) -> LlamaGenTransformer:
    """A transformer whose every weight is random: a new one keeps silent."""
    model = LlamaGenTransformer(**{**TINY, **changes})
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            is_scale = weight.ndim == 1
            weight.copy_(torch.randn(weight.shape, generator=dice) * 0.2 + (1.0 if is_scale else 0.0))
            assert is_scale == ("norm" in name)
    return model.eval()


def random_masks(*valid: int) -> Tensor:
    """[B, P] with the given number of valid rows, last."""
    return torch.arange(TINY["cls_token_num"]) >= TINY["cls_token_num"] - torch.tensor(valid)[:, None]


def naive_visible(mask: Tensor, rows: int) -> Tensor:
    there = mask.tolist() + [True] * (rows - len(mask))
    return torch.tensor([[j == i or (j < i and there[j]) for j in range(rows)] for i in range(rows)])


def naive_factors(config, rows: int) -> Tensor:
    """Complex turn of every row and pair."""
    pairs, base = config.dim // config.num_heads // 2, config.rope_base
    factors = torch.full((rows, pairs), 0 if config.text_rope == "zero" else 1, dtype=torch.complex64)
    for row in range(config.cls_token_num, rows):
        place = divmod(row - config.cls_token_num, config.grid_size)
        for pair in range(pairs):
            axis, index = divmod(pair, pairs // 2)
            angle = place[axis] * base ** (-2 * index / pairs)
            factors[row, pair] = complex(math.cos(angle), math.sin(angle))
    return factors


def naive_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def released_weights(model: LlamaGenTransformer) -> dict[str, Tensor]:
    """Our weights under the names, and in the pieces, of the released checkpoints (gpt.py)."""
    own = model.state_dict()
    released = {
        "cls_embedding.uncond_embedding": own["condition.uncond_embedding"],
        "cls_embedding.cap_proj.fc1.weight": own["condition.fc1.weight"],
        "cls_embedding.cap_proj.fc2.weight": own["condition.fc2.weight"],
        "tok_embeddings.weight": own["token_embedding.weight"],
        "norm.weight": own["norm.weight"],
        "output.weight": own["head.weight"],
    }
    for layer in range(model.config.num_layers):
        w1, w3 = own[f"layers.{layer}.gate_up"].chunk(2)
        for name, weight in {
            "attention.wqkv": own[f"layers.{layer}.qkv"],
            "attention.wo": own[f"layers.{layer}.attention_out"],
            "feed_forward.w1": w1,
            "feed_forward.w2": own[f"layers.{layer}.down"],
            "feed_forward.w3": w3,
            "attention_norm": own[f"layers.{layer}.attention_norm"],
            "ffn_norm": own[f"layers.{layer}.ffn_norm"],
        }.items():
            released[f"layers.{layer}.{name}.weight"] = weight.clone()
    return released


def naive_hidden(model: LlamaGenTransformer, features: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
    """[P + n, D] final-normed features of one sequence. features: [P, C]; mask: [P]; tokens: [n]."""
    return naive_rows(model.config, released_weights(model), features, mask, tokens)


def naive_rows(config, weights: dict[str, Tensor], features: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
    """The same, of released weights."""
    text = F.gelu(features @ weights["cls_embedding.cap_proj.fc1.weight"].T, approximate="tanh")
    x = torch.cat([text @ weights["cls_embedding.cap_proj.fc2.weight"].T, weights["tok_embeddings.weight"][tokens]])
    visible, factors = naive_visible(mask, len(x)), naive_factors(config, len(x))
    width = config.dim // config.num_heads

    def turn(rows: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(rows.reshape(len(rows), -1, 2)) * factors).reshape(
            len(rows), -1
        )

    for layer in range(config.num_layers):
        own = {name.split(".", 2)[2]: w for name, w in weights.items() if name.startswith(f"layers.{layer}.")}
        normed = naive_rms_norm(x, own["attention_norm.weight"], config.norm_eps)
        q, k, v = (normed @ own["attention.wqkv.weight"].T).split(config.dim, -1)
        heads = []
        for head in range(config.num_heads):
            part = slice(head * width, (head + 1) * width)
            scores = turn(q[:, part]) @ turn(k[:, part]).T / math.sqrt(width)
            heads.append(scores.masked_fill(~visible, -math.inf).softmax(-1) @ v[:, part])
        x = x + torch.cat(heads, -1) @ own["attention.wo.weight"].T
        normed = naive_rms_norm(x, own["ffn_norm.weight"], config.norm_eps)
        gate, up = normed @ own["feed_forward.w1.weight"].T, normed @ own["feed_forward.w3.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ own["feed_forward.w2.weight"].T
    return naive_rms_norm(x, weights["norm.weight"], config.norm_eps)


@pytest.mark.parametrize("text_rope", ["zero", "identity"])
@torch.no_grad()
def test_full_forward_equals_the_naive_one(text_rope: str):
    model = make_tiny(text_rope=text_rope)
    dice = torch.Generator().manual_seed(1)
    features = torch.randn(3, TINY["cls_token_num"], TINY["caption_dim"], generator=dice)
    mask, tokens = random_masks(6, 3, 1), torch.randint(50, (3, 16), generator=dice)
    output = model(features, mask, tokens, uncond=torch.tensor([False, True, False]))
    seen = features.clone()
    seen[1] = model.condition.uncond_embedding
    hidden = torch.stack([naive_hidden(model, *row) for row in zip(seen, mask, tokens[:, :-1])])
    torch.testing.assert_close(output.hidden, hidden, rtol=0, atol=ATOL)
    logits = hidden[:, TINY["cls_token_num"] - 1 :] @ model.head.weight.T
    torch.testing.assert_close(output.logits, logits, rtol=0, atol=ATOL)
    assert output.logits.shape == (3, 16, 50) and output.taps is None


@torch.no_grad()
def test_text_rope_changes_what_is_computed():
    args = torch.ones(1, 6, 12), random_masks(6), torch.arange(16)[None]
    zero, identity = (make_tiny(text_rope=rope)(*args).logits for rope in ("zero", "identity"))
    assert (zero - identity).abs().max() > 0.01, "parity tests cannot tell the two rotations apart"


@torch.no_grad()
def test_padding_takes_no_part():
    model = make_tiny()
    features, mask, tokens = torch.randn(1, 6, 12), random_masks(2), torch.arange(16)[None]
    other = features.clone()
    other[:, :4] = 9.0
    torch.testing.assert_close(model(features, mask, tokens).logits, model(other, mask, tokens).logits, rtol=0, atol=0)


@torch.no_grad()
def test_taps_are_the_inputs_of_the_layers_asked_for():
    model = make_tiny()
    inputs = []
    hooks = [layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0])) for layer in model.layers]
    features, mask, tokens = torch.randn(2, 6, 12), random_masks(6, 6), torch.arange(16).expand(2, -1)
    taps = model(features, mask, tokens, tap_layers=(0, 2)).taps
    assert taps.shape == (2, 21, 64)
    assert torch.equal(taps.flatten(0, 1), torch.cat([inputs[0], inputs[2]], -1))
    for hook in hooks:
        hook.remove()


def test_a_new_transformer_is_nearly_silent_and_learns():
    torch.manual_seed(0)
    model = LlamaGenTransformer(**TINY)
    features, mask, tokens = torch.randn(2, 6, 12), random_masks(6, 2), torch.randint(50, (2, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        logits = model(features, mask, tokens).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - math.log(50)) < 0.01 and losses[-1] < 1.0, losses


@pytest.mark.parametrize("name", SIZES)
def test_every_size_has_its_parameters(name: str):
    with torch.device("meta"):
        model = LlamaGenTransformer(**SIZES[name])
    millions = sum(tensor.numel() for tensor in model.state_dict().values()) / 1e6
    # gpt.py rounds, and counts labels in place of the text projection: up to 4 % of the smallest two.
    assert millions == pytest.approx(PUBLISHED_MILLIONS[name], rel=0.05)


def test_xl_has_exactly_the_released_parameters():
    with torch.device("meta"):
        model = LlamaGenTransformer(**SIZES["XL"])
    assert sum(tensor.numel() for tensor in model.state_dict().values()) == 777_923_840
    assert len(released_weights(model)) == 258


@pytest.mark.parametrize(
    ("change", "message"),
    [({"num_heads": 3}, "`dim` must be a multiple"), ({"text_rope": "none"}, "`text_rope` must be one of")],
)
def test_impossible_configs_are_refused(change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        LlamaGenTransformer(**{**TINY, **change})


@torch.no_grad()
def test_saved_weights_come_back(tmp_path):
    model = make_tiny()
    model.save_pretrained(tmp_path)
    again = LlamaGenTransformer.from_pretrained(tmp_path)
    args = torch.randn(1, 6, 12), random_masks(4), torch.arange(16)[None]
    assert torch.equal(model(*args).logits, again(*args).logits)


@torch.no_grad()
def test_bfloat16_runs_close_to_float32():
    model = make_tiny()
    args = torch.randn(1, 6, 12), random_masks(4), torch.arange(16)[None]
    expected = model(*args).logits
    found = model.to(torch.bfloat16)(args[0].bfloat16(), *args[1:]).logits
    # bfloat16 keeps 8 bits: 3 layers of sums of 32 terms around 4 stay within a few per cent of it.
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.15)
