"""The decoding core against worked cases: sampling order, chains, tree nodes, static trees, counts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import EveryChance, GivenDice, branches, laws_only
from torch import Tensor

from pipelines.decoding.rules import ExactRule
from pipelines.decoding.verify import Verdict, walk
from pipelines.primitives.chance import Chance
from pipelines.primitives.distributions import Warp, guide, one_hot, residual, total_variation
from pipelines.primitives.layout import Layout
from pipelines.primitives.trace import NODE, PATHS, ROW, STEP, Header, Step, Trace
from pipelines.primitives.tree import STATIC_TREES, Draft, StaticTree, chain, depths, leaf_paths, tree_mask


FOLDER = Path(__file__).parent / "vectors"
DRAFTER = json.loads((FOLDER / "drafter.json").read_text())
JACOBI = json.loads((FOLDER / "jacobi.json").read_text())["vectors"]
close = pytest.approx
TOLERANCE = 1e-9


def rows(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def judge(draft: Draft, p_rows: Tensor, chance: Chance) -> Verdict:
    return walk(ExactRule(), draft, laws_only(p_rows), chance, 0.0)


@pytest.mark.parametrize("case", DRAFTER["cfg_sampling"])
def test_guidance_temperature_top_k_and_top_p_apply_in_this_order(case):
    warp = Warp(case["temperature"], case["top_k"], case["top_p"])
    logits = guide(rows(case["cond"]), rows(case["uncond"]), case["scale"])
    assert warp.filter(warp.soften(logits)).tolist() == close(case["p_llamagen_order"], abs=TOLERANCE)


@pytest.mark.parametrize("case", DRAFTER["sd_single_step"])
def test_one_guess(case):
    p, q = rows(case["p"]), rows(case["q"])
    draft = chain([case["draft"]], q[None])
    chance = GivenDice([case["u"], case["u_resample"]])
    verdict = judge(draft, torch.stack([p, p]), chance)
    assert verdict.accept_prob == close([case["accept_prob"]], abs=TOLERANCE)
    assert bool(verdict.path) == case["accept"]
    assert residual(p, q).tolist() == close(case["residual"], abs=TOLERANCE)
    assert 1 - float(total_variation(p, q)) == close(case["alpha"], abs=TOLERANCE)
    token = case["draft"] if verdict.path else verdict.token
    assert token == case["token_out"]
    assert node_law(p, [q], 1) == close(case["output_dist"], abs=TOLERANCE)


@pytest.mark.parametrize("case", DRAFTER["sd_chain"])
def test_a_chain(case):
    dice = case["u"][: len(case["trace"])]
    chance = GivenDice([*dice, case["u_next"]])
    verdict = judge(chain(case["draft"], rows(case["q_rows"])), rows(case["p_rows"]), chance)
    judged = len(case["trace"])
    assert verdict.accept_prob[:judged] == close([entry["f"] for entry in case["trace"]], abs=TOLERANCE)
    assert np.isnan(verdict.accept_prob[judged:]).all()
    assert verdict.dice[:judged] == dice
    assert chance.law.tolist() == close(case["next_dist"], abs=TOLERANCE)
    assert [*(case["draft"][node] for node in verdict.path), verdict.token] == case["emitted"]


@pytest.mark.parametrize("case", DRAFTER["tree_node_sampled_wor"])
def test_children_sampled_without_replacement(case):
    q = rows(case["q"])
    reduced = [q]
    for candidate in case["candidates"][:-1]:
        reduced.append(without(reduced[-1], candidate))
    check_node(case, torch.stack(reduced))
    for entry, law in zip(case["trace"], reduced):
        assert float(law[entry["x"]]) == close(entry["q_cond"], abs=TOLERANCE)
    assert node_law(rows(case["p"]), [q], len(case["candidates"])) == close(case["output_dist"], abs=TOLERANCE)


@pytest.mark.parametrize("case", DRAFTER["tree_node_onehot"])
def test_children_as_certainties(case):
    p = rows(case["p"])
    certain = one_hot(case["candidates"], p)
    check_node(case, certain)
    assert node_law(p, list(certain), len(certain)) == close(case["output_dist"], abs=TOLERANCE)
    assert float(p[case["candidates"]].sum()) == close(case["prob_any_accepted"], abs=TOLERANCE)


def check_node(case: dict, q: Tensor) -> None:
    judged = len(case["trace"])
    chance = GivenDice([*case["u"][:judged], case["u_next"]])
    p_rows = rows([case["p"]] * (len(q) + 1))
    verdict = judge(Draft(case["candidates"], [-1] * len(q), q), p_rows, chance)
    assert verdict.p[:judged] == close([entry["p_cur"] for entry in case["trace"]], abs=TOLERANCE)
    assert verdict.accept_prob[:judged] == close([entry["f"] for entry in case["trace"]], abs=TOLERANCE)
    if case["accepted"] is None:
        assert verdict.path == []
        assert chance.law.tolist() == close(case["final_dist"], abs=TOLERANCE)
        assert verdict.token == case["token_out"]
    else:
        assert [case["candidates"][node] for node in verdict.path] == [case["accepted"]]


def without(q: Tensor, token: int) -> Tensor:
    q = q.clone()
    q[token] = 0
    return q / q.sum()


def node_law(p: Tensor, laws: list[Tensor], count: int) -> list[float]:
    """Exact law of the first token: `count` children drawn without replacement from one law, or one from each."""

    def run(chance: EveryChance) -> int:
        tokens, q = [], []
        for child in range(count):
            q.append(laws[child] if len(laws) == count else laws[0] if not child else without(q[-1], tokens[-1]))
            tokens.append(int(chance.categorical(q[-1][None])))
        verdict = judge(Draft(tokens, [-1] * count, torch.stack(q)), p.expand(count + 1, -1), chance)
        return tokens[verdict.path[0]] if verdict.path else verdict.token

    masses = [0.0] * len(p)
    for token, weight in branches(run):
        masses[token] += weight
    return masses


@pytest.mark.parametrize("case", [case for case in DRAFTER["static_tree_buffers"] if "choices" in case])
def test_buffers_of_a_static_tree(case):
    tree = StaticTree(tuple(map(tuple, reversed(case["choices"]))))
    assert [list(path) for path in tree.order] == case["order"]
    assert [parent + 1 for parent in tree.parents] == case["parent_index"]
    assert [0, *depths(tree.parents)] == case["position"]
    assert tree_mask(tree.parents).int().tolist() == case["tree_mask"]
    assert leaf_paths(tree.parents).tolist() == case["retrieve_indices"]


@pytest.mark.parametrize("case", [case for case in DRAFTER["static_tree_buffers"] if "name" in case])
def test_the_named_static_tree(case):
    parents = STATIC_TREES[case["n_nodes"]].parents
    depth = depths(parents)
    assert len(parents) == case["n_nodes"]
    assert len(leaf_paths(parents)) == case["n_leaves"]
    assert [depth.count(level) for level in range(1, case["max_depth"] + 1)] == case["nodes_per_depth"]


def test_accepted_length_leaves_the_prefill_out():
    case = DRAFTER["metrics"][0]
    trace = Trace(Header("", "", "", "", "", 1, "", {}, None, ""), Layout(1, 1 + sum(case["tokens_per_round"])))
    for index, accepted in enumerate([0, *case["accepted_per_round"]]):
        trace.steps.append(bare_step(index, len(trace.tokens), accepted + 1))
    assert trace.nfe == 1 + case["target_calls"]
    assert trace.accepted_length == case["mean_accepted_length_tau"]
    assert trace.complete


def bare_step(index: int, start: int, committed: int) -> Step:
    arrays = dict.fromkeys(NODE | ROW | PATHS, np.empty(0, np.int32))
    arrays["committed"] = np.zeros(committed, np.int32)
    return Step(index, start, **arrays, **dict.fromkeys(STEP, 0), notes={})


@pytest.mark.parametrize("case", [case for case in JACOBI if case["kind"] == "verify"], ids=lambda case: case["name"])
def test_a_window_of_jacobi_guesses(case):
    expect = case["expect"]
    judged = len(expect["accept_probs"])
    refused = expect["first_reject"] is not None
    chance = GivenDice([*case["u"][:judged], case["u_residual"] if refused else case["u_bonus"]])
    verdict = judge(chain(case["drafts"], rows(case["q_rows"])), rows(case["p_rows"]), chance)
    assert verdict.accept_prob[:judged] == close(expect["accept_probs"], abs=1e-8)
    assert [*(case["drafts"][node] for node in verdict.path), verdict.token] == expect["final_tokens"]
    if refused:
        assert len(verdict.path) == expect["first_reject"]
        assert chance.law.tolist() == close(expect["residual"], abs=1e-8)
