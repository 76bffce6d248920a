"""Rounds and traces written by hand, for what is drawn from them."""

import numpy as np

from pipelines.primitives.trace import Header, Step


HEADER = Header("ARPipeline", "tiny", "0" * 64, "float32", "2.8", 1, "cpu", {"temperature": 1.0}, 7, "a panda")


def a_round(index=0, start=0, tokens=(), parents=(), p=None, q=None, accept_prob=(), dice=(), path=(), committed=(0,)):
    """A step of 10 ms. p and q are by default such that exact speculative sampling has the chances `accept_prob`."""
    nodes, law = len(tokens), np.array(accept_prob, float)
    return Step(
        index=index,
        start=start,
        tokens=np.array(tokens, np.int32),
        parents=np.array(parents, np.int32),
        p=np.array(law if p is None else p, np.float32),
        q=np.ones(nodes, np.float32) if q is None else np.array(q, np.float32),
        accept_prob=law,
        dice=np.array(dice, float),
        path=np.array(path, np.int32),
        committed=np.array(committed, np.int32),
        top_tokens=np.zeros((1 + nodes, 2), np.int32),
        top_probs=np.full((1 + nodes, 2), 0.5, np.float32),
        entropy=np.ones(1 + nodes, np.float32),
        draft_calls=0,
        draft_seconds=0.001,
        target_seconds=0.007,
        rest_seconds=0.002,
        notes={},
    )
