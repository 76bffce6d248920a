"""Products by transposed copies: the same numbers, of the weights as they are now."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pipelines.models import products
from pipelines.models.llamagen import rms_norm
from pipelines.models.products import MANY_ROWS, add_product, product


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [1, MANY_ROWS - 1, MANY_ROWS, 3 * MANY_ROWS])
@torch.no_grad()
def test_few_and_many_rows_give_the_plain_products(rows: int):
    x, base, weight = torch.randn(rows, 6), torch.randn(rows, 5), nn.Parameter(torch.randn(5, 6))
    close(product(x, weight), F.linear(x, weight))
    close(add_product(base, x, weight), base + F.linear(x, weight))
    assert (weight in products._copies) == (rows >= MANY_ROWS), "few rows need no copy"


@torch.no_grad()
def test_a_copy_follows_its_weight():
    layer, x = nn.Linear(6, 5, bias=False), torch.randn(MANY_ROWS, 6)
    weight = layer.weight
    close(product(x, weight), layer(x))
    held = products._copies[weight]
    product(x, weight)
    assert products._copies[weight] is held, "copied once"
    weight.mul_(2)
    close(product(x, weight), layer(x))
    layer.load_state_dict({"weight": torch.randn(5, 6)})
    close(product(x, weight), layer(x))
    layer.bfloat16()
    layer.float()  # the same parameter, rounded
    close(product(x, weight), layer(x))
    count = len(products._copies)
    del layer, weight, held
    assert len(products._copies) == count - 1, "it goes with its weight"


def test_training_and_other_precisions_use_the_weights_themselves():
    weight, x = nn.Parameter(torch.randn(5, 6)), torch.randn(MANY_ROWS, 6)
    product(x, weight).sum().backward()
    assert weight.grad.abs().sum() > 0
    with torch.no_grad():
        product(x.bfloat16(), nn.Parameter(weight.bfloat16()))
    with torch.inference_mode():
        fleeting = nn.Parameter(torch.randn(5, 6))
        close(product(x, fleeting), F.linear(x, fleeting))
    assert weight not in products._copies and fleeting not in products._copies


def test_the_norm_of_a_step_is_that_of_training():
    x, weight = torch.randn(7, 32) * torch.logspace(-4, 2, 7)[:, None], torch.rand(32)
    trained = rms_norm(x, weight, 1e-5)
    with torch.no_grad():
        close(rms_norm(x, weight, 1e-5), trained)
