"""Sharing beginnings changes how often a token runs, never what comes out."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.learn.model import causal_attention
from etude.learn.train.balance import rows_to_train
from etude.learn.train.batch import padded_batch, shared_batch
from etude.learn.train.next_token import NextToken
from etude.learn.train.rollout_batch import LONG_PREFIX, by_segment, rollout_batches
from etude.learn.train.shared_prefix import TokenTree, TreeMask, common_prefix

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8)


def tree_of(sequences, routes=None):
    arrays = [np.array(s) for s in sequences]
    return TokenTree(arrays, routes or [None] * len(arrays))


@given(SEQUENCES)
def test_a_tree_has_one_node_for_each_different_beginning(sequences):
    tree = tree_of(sequences)
    assert len(tree.ids) == len({tuple(s[: t + 1]) for s in sequences for t in range(len(s))})
    for sequence, row in zip(sequences, tree.rows, strict=True):
        assert tree.ids[row].tolist() == sequence
        assert tree.positions[row].tolist() == list(range(len(sequence)))
        assert (np.diff(row) > 0).all()


@given(SEQUENCES)
def test_rows_and_nodes_are_inverse_and_gradients_add_up(sequences):
    tree = tree_of(sequences)
    mask = TreeMask(tree)
    x = torch.arange(len(tree.ids) * 2.0).view(-1, 1, 2).requires_grad_()
    rows = mask.to_rows(x)
    assert torch.equal(mask.to_tokens(rows), x)
    used = torch.zeros(rows.shape[:2])
    for r, row in enumerate(tree.rows):
        assert torch.equal(rows[r, : len(row)], x[torch.from_numpy(row)])
        used[r, : len(row)] = 1
    (rows * used[..., None, None]).sum().backward()
    visits = np.bincount(np.concatenate(tree.rows), minlength=len(tree.ids))
    assert torch.equal(x.grad[:, 0, 0], torch.from_numpy(visits).float())


@given(SEQUENCES)
def test_the_dense_mask_is_the_relation_of_ancestors(sequences):
    tree = tree_of(sequences)
    paths = {}
    for sequence, row in zip(sequences, tree.rows, strict=True):
        paths |= {int(node): tuple(sequence[: t + 1]) for t, node in enumerate(row)}
    dense = TreeMask(tree).dense()[0]
    for i, of_i in paths.items():
        for j, of_j in paths.items():
            assert bool(dense[i, j]) == (of_i[: len(of_j)] == of_j)


def test_tokens_with_different_experts_are_not_shared():
    routes = [np.zeros((3, 1, 2), np.uint8), np.zeros((3, 1, 2), np.uint8)]
    assert len(tree_of([[1, 2, 3], [1, 2, 3]], routes).ids) == 3
    routes[1][1] = 1
    assert len(tree_of([[1, 2, 3], [1, 2, 3]], routes).ids) == 5


def test_a_tree_gives_the_hidden_states_of_its_sequences(model):
    sequences = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 9], [1, 2, 3, 4, 5, 7, 8, 9], [3]]
    tree = tree_of(sequences)
    shared = model(torch.from_numpy(tree.ids)[None], TreeMask(tree)).logits[0]
    assert len(shared) < sum(map(len, sequences))
    for sequence, row in zip(sequences, tree.rows, strict=True):
        alone = model(torch.tensor([sequence])).logits[0]
        torch.testing.assert_close(shared[torch.from_numpy(row)], alone, rtol=0, atol=1e-5)


def test_values_return_to_their_segments_whatever_the_batching(make, model):
    rollouts = make.rollouts(model, 9)
    for batch_tokens in (64, 10_000):
        batches = rollout_batches(rollouts, batch_tokens)
        values = by_segment(rollouts, rows_to_train(rollouts), torch.cat([batch.sampler_logprobs for batch in batches]))
        for rollout, arrays in zip(rollouts, values, strict=True):
            np.testing.assert_array_equal(arrays[0], rollout.segments[0].logprobs)
    assert len(batches) == 1 and batches[0].ids.numel() < sum(len(r.segments[0]) for r in rollouts)


@given(SEQUENCES)
def test_the_prefix_is_what_all_sequences_begin_with(sequences):
    tree = tree_of(sequences)
    shortest = min(map(len, sequences))
    wanted = next((n for n in range(shortest) if len({s[n] for s in sequences}) > 1), shortest)
    assert tree.prefix == wanted == min(common_prefix(np.array(sequences[0]), np.array(s)) for s in sequences)
    for node, parent in enumerate(tree.parents):
        assert parent < node and tree.positions[node] == (tree.positions[parent] + 1 if parent >= 0 else 0)


def test_a_batch_with_a_shared_prefix_has_the_loss_and_the_gradients_of_its_rows(model, monkeypatch):
    """With attention split at the prefix, and with probabilities computed again in the backward pass, as long rows have them."""
    dice = np.random.default_rng(0)
    prefix = dice.integers(0, 20, 150)
    ids = [np.concatenate([prefix, dice.integers(0, 20, length)]) for length in (1, 40, 90, 33)]
    weights = [np.where(np.arange(len(row)) < 150, 0, dice.random(len(row))).astype(np.float32) for row in ids]
    learner, found = NextToken(model, 0.0), []
    for make, kept in ((padded_batch, 1 << 40), (shared_batch, 1 << 40), (shared_batch, 0), (padded_batch, 0)):
        monkeypatch.setattr(causal_attention, "KEPT_BYTES", kept)
        model.zero_grad()
        loss = learner.loss(make(ids, weights))
        loss.backward()
        found.append(
            (float(loss.detach()), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        )
    assert shared_batch(ids, weights).ids.numel() == len({tuple(row[: t + 1]) for row in ids for t in range(len(row))})
    (loss, gradients), *others = found
    for other, its in others:
        assert abs(other - loss) < 1e-6 and its.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(its[name], gradient, rtol=1e-4, atol=2e-7, msg=name)


def _with_prefix(rollout, prefix):
    """The rollout with tokens in front of its one segment, which it did not sample."""
    (segment,), n = rollout.segments, len(prefix)
    longer = {
        name: np.concatenate([np.full(n, fill, getattr(segment, name).dtype), getattr(segment, name)])
        for name, fill in (("sampled", False), ("logprobs", 0), ("versions", -1))
    }
    ids = np.concatenate([prefix, segment.ids])
    return replace(rollout, segments=[replace(segment, ids=ids, routes=None, **longer)])


def test_rows_with_a_long_prefix_in_common_share_a_batch(make, model):
    """The prefix counts once, so that what is left of the batch is for the sessions."""
    prefix = np.random.default_rng(0).integers(0, 20, LONG_PREFIX)
    rollouts = [_with_prefix(rollout, prefix) for rollout in make.rollouts(model, 9)]
    behind = sum(len(r.segments[0]) - LONG_PREFIX for r in rollouts)
    assert len(rollout_batches(rollouts, LONG_PREFIX + behind)) == 1
    assert 1 < len(rollout_batches(rollouts, LONG_PREFIX + behind // 2)) < 4  # else one for each of the nine
    short = [_with_prefix(rollout, prefix[:40]) for rollout in make.rollouts(model, 9)]
    assert len(rollout_batches(short, LONG_PREFIX + behind)) > 1
