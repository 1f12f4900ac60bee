import pytest
import torch

from vit_vs_cnn.attention import causal_mask, combine_masks, scaled_dot_product_attention, valid_length_mask

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 11


def inputs():
    shapes = [(QUERIES, DIM), (KEYS, DIM), (KEYS, DIM)]
    return [torch.randn(BATCH, HEADS, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_a_length_per_sequence_shows_its_first_keys_to_all_queries():
    mask = valid_length_mask(torch.tensor([3, 0]), KEYS)
    assert mask.shape == (BATCH, 1, 1, KEYS)
    assert mask.flatten(1).tolist() == [[True] * 3 + [False] * 4, [False] * 7]


def test_a_length_per_query_shows_each_query_its_own():
    lengths = torch.randint(0, KEYS + 1, (BATCH, QUERIES))
    mask = valid_length_mask(lengths, KEYS)
    assert mask.shape == (BATCH, 1, QUERIES, KEYS)
    assert torch.equal(mask.sum(-1)[:, 0], lengths)
    assert not (mask[..., 1:] & ~mask[..., :-1]).any()


@pytest.mark.parametrize("per_query", [False, True])
def test_masked_keys_are_as_if_absent(per_query):
    queries, keys, values = inputs()
    lengths = torch.tensor([4, 2])
    mask = valid_length_mask(lengths[:, None].expand(-1, QUERIES) if per_query else lengths, KEYS)
    output = scaled_dot_product_attention(queries, keys, values, mask=mask)
    for image, length in enumerate(lengths):
        rows = slice(image, image + 1)
        alone = scaled_dot_product_attention(queries[rows], keys[rows, :, :length], values[rows, :, :length])
        torch.testing.assert_close(output[rows], alone, rtol=0, atol=1e-12)


def test_causal_mask_hides_the_future():
    mask = causal_mask(KEYS)
    assert torch.equal(mask, torch.arange(KEYS)[:, None] >= torch.arange(KEYS))


def test_combined_masks_allow_what_all_allow():
    lengths = valid_length_mask(torch.tensor([3, 6]), KEYS)
    combined = combine_masks(None, lengths, causal_mask(KEYS), None)
    assert combined.shape == (BATCH, 1, KEYS, KEYS)
    for image, length in enumerate((3, 6)):
        for query in range(KEYS):
            allowed = combined[image, 0, query].nonzero().flatten().tolist()
            assert allowed == list(range(min(query + 1, length)))
    assert combine_masks(None, None) is None
    assert combine_masks(None, lengths) is lengths
