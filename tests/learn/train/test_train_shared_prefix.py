"""Sharing beginnings changes how often a token runs, never what comes out."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.learn.train.balance import rows_to_train
from etude.learn.train.rollout_batch import by_segment, rollout_batches
from etude.learn.train.shared_prefix import TokenTree, TreeMask

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
