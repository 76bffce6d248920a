"""How long one target forward takes: over n tokens, and its bare matrix products run alone."""

from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pipelines.models.protocol import Session
from pipelines.primitives.tree import EMPTY, Draft, chain


SIZES = (1, 2, 4, 8, 16, 32, 64)  # tokens of one forward
ROUNDS, WARM_UP, REPEATS = 7, 5, 3  # each time is the median of ROUNDS x REPEATS, the sizes taking turns by rounds
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "einsum")
ATTENTION = "scaled_dot_product"


class Products(TorchDispatchMode):
    """Notes the matrix products that run under it, with their operands, so that they can be run again alone."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Tensor | tuple[Tensor, ...]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in PRODUCTS or ATTENTION in name:
            self.calls.append(lambda: func(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))

    def replay(self) -> Tensor:
        """Run the products again, in their order; the result of the last one."""
        for call in self.calls:
            product = call()
        return product if isinstance(product, Tensor) else product[0]


class Forwards:
    """A session brought to `held` cached image tokens, to time its forwards there; timing leaves it as it is."""

    @torch.no_grad()
    def __init__(self, session: Session, held: int) -> None:
        self.session, self.held = session, held
        self.room = session.layout.length - held
        self.law = session.score(EMPTY).probs[0]  # [V]
        session.commit(EMPTY, [], 0)
        while held:
            draft = self.chain(min(held, SIZES[-1]))
            session.score(draft)
            session.commit(draft, list(range(len(draft))), 0)
            held -= len(draft) + 1

    def chain(self, size: int) -> Draft:
        """A draft whose forward reads `size` tokens, the root included. Which tokens they are costs nothing."""
        nodes = size - 1
        return chain([0] * nodes, self.law.expand(nodes, -1))

    @torch.no_grad()
    def seconds(self) -> dict[int, float]:
        """t(n): seconds of one forward over n tokens, for every n of `SIZES` for which the picture has room.

        Some forwards of the same size go before, as in a run: right after a large one, a small one takes half as long
        again.
        """
        drafts = {size: self.chain(size) for size in SIZES if size <= self.room}
        times: dict[int, list[float]] = {size: [] for size in drafts}
        for _ in range(ROUNDS):
            for size, draft in drafts.items():
                times[size] += self._in_a_row(lambda draft=draft: self.session.score(draft).probs)
        return {size: float(np.median(found)) for size, found in times.items()}

    @torch.no_grad()
    def product_seconds(self) -> float:
        """Seconds of the matrix products of a forward over one token, with nothing in between.

        They are those of the linear layers, of attention and of the head, in the shapes and the precision in which the
        session runs them, the guidance pair as one batch.
        """
        with Products() as products:
            self.session.score(EMPTY)
        assert products.calls, "the forward ran no matrix product that is known here"
        return float(np.median([seconds for _ in range(ROUNDS) for seconds in self._in_a_row(products.replay)]))

    def _in_a_row(self, work: Callable[[], Tensor]) -> list[float]:
        """Seconds of the last repeats of many."""
        return [clocked(work) for _ in range(WARM_UP + REPEATS)][WARM_UP:]


def clocked(work: Callable[[], Tensor]) -> float:
    """Seconds until the result of `work` is there: reading one number of it waits for the device."""
    start = perf_counter()
    work().flatten()[-1].item()
    return perf_counter() - start
