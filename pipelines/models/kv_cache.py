"""Keys and values of one run, in one block that is allocated once. Knows nothing of masks, trees or models."""

import torch
from torch import Tensor


class KVCache:
    """Rows that stay, and behind them the rows of the last forward, which the next `keep` or `extend` settles.

    store: [layers, 2, B, heads, capacity, head_dim], keys and values; its content is never read before it is written.
    """

    def __init__(self, store: Tensor) -> None:
        self.length = 0
        self._store = store

    def extend(self, count: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Views to write `count` new rows into, and of all keys and all values with the new ones: one of each a layer.

        [2, B, heads, count, head_dim], then twice [B, heads, length + count, head_dim]. Rows of an earlier forward
        that were not kept are written over. A forward larger than the block moves everything to a larger one.
        """
        end = self.length + count
        if end > self._store.shape[4]:
            self._grow(2 * end)
        halves = self._store[:, :, :, :, :end].flatten(0, 1).unbind(0)
        return self._store[:, :, :, :, self.length : end].unbind(0), halves[::2], halves[1::2]

    def keep(self, rows: list[int]) -> None:
        """Let the given rows of the last forward stay, in this order; forget the others."""
        if rows != list(range(len(rows))):
            places = torch.tensor(rows, device=self._store.device) + self.length
            kept = self._store.index_select(4, places)  # [layers, 2, B, heads, rows, head_dim]
            self._store[:, :, :, :, self.length : self.length + len(rows)] = kept
        self.length += len(rows)

    def _grow(self, capacity: int) -> None:
        shape = list(self._store.shape)
        shape[4] = capacity
        store = self._store.new_empty(shape)
        store[:, :, :, :, : self.length] = self._store[:, :, :, :, : self.length]
        self._store = store
