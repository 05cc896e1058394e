"""NVFP4 by arithmetic is the format: exact over its codes, within its bits elsewhere, and what one row becomes is its own matter."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from etude.learn.formats.nvfp4 import BLOCK, SecondScale, dequantise, quantise, round_to_nvfp4
from etude.learn.formats.small_floats import E2M1, E4M3

SECONDS: tuple[SecondScale, ...] = ("row", "tensor")


def e2m1(code: int) -> float:
    """The number of a code by the specification's formula (OCP MX v1.0, 5.3.3)."""
    sign, exponent, mantissa = -1.0 if code & 8 else 1.0, code >> 1 & 3, code & 1
    return sign * (mantissa / 2 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + mantissa / 2))


CODES = {e2m1(code): code for code in range(16) if code != 8}  # -0 is 0
NUMBERS = sorted(CODES)


def rows(low: int = -20, high: int = 20, count: int = 3) -> st.SearchStrategy[Tensor]:
    """Matrices of up to `count` rows of numbers of chance magnitudes."""
    number = st.builds(lambda m, e: m * 2.0**e, st.floats(-2, 2, width=32), st.integers(low, high)) | st.just(0.0)

    def matrix(width: int) -> st.SearchStrategy[Tensor]:
        row = st.lists(number, min_size=width, max_size=width)
        return st.lists(row, min_size=1, max_size=count).map(lambda found: torch.tensor(found, dtype=torch.float32))

    return st.integers(1, 3 * BLOCK).flatmap(matrix)


def test_the_numbers_of_the_format_are_its_fifteen() -> None:
    assert NUMBERS == [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert torch.equal(E2M1.round(torch.tensor(NUMBERS)), torch.tensor(NUMBERS))


@given(st.floats(-8, 8, width=32))
def test_an_element_is_the_nearest_number_and_of_two_the_even_one(y: float) -> None:
    found = float(E2M1.round(torch.tensor([y])))
    distance = {value: abs(Fraction(value) - Fraction(y)) for value in NUMBERS}
    nearest = [value for value in NUMBERS if distance[value] == min(distance.values())]
    assert found in nearest
    if len(nearest) == 2:
        assert CODES[found] & 1 == 0


@pytest.mark.parametrize("second", SECONDS)
def test_every_scale_with_every_element_comes_back_unchanged(second: SecondScale) -> None:
    codes = torch.arange(1, 127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()  # all positive scales
    elements = torch.tensor([*NUMBERS, 6.0])
    x = codes.unsqueeze(1) * elements  # (126, 16): with 6 in every block its scale is the given one
    above = 2.0**-3
    whole = torch.cat((x, torch.full((126, BLOCK), 448 * 6.0)), 1) * above  # and with the largest of all, g is
    assert torch.equal(round_to_nvfp4(whole, second), whole)


@given(rows(), st.sampled_from(SECONDS))
def test_an_element_is_off_by_at_most_what_its_bits_allow(x: Tensor, second: SecondScale) -> None:
    """Half a step, of 2 at the top of a block; a block's largest number may be cut where its scale was rounded down: by a fifteenth, or by half the
    least scale there is."""
    elements, scales, above = quantise(x, second)
    found = dequantise(elements, scales, above)
    blocks = scales.repeat_interleave(BLOCK, -1)[..., : x.shape[-1]]
    bound = above * torch.maximum(blocks * 1.001, 6 * torch.maximum(blocks / 15, torch.tensor(2.0**-10)) * 1.001)
    assert bool(((found - x).abs() <= bound).all())


@given(rows(count=4))
def test_a_row_is_rounded_as_if_it_were_alone(x: Tensor) -> None:
    whole = round_to_nvfp4(x, "row")
    for number, row in enumerate(x):
        assert torch.equal(whole[number], round_to_nvfp4(row[None], "row")[0])


def test_with_one_scale_for_a_tensor_a_row_depends_on_the_others() -> None:
    row = torch.linspace(-1, 1, 2 * BLOCK)
    alone = round_to_nvfp4(row[None], "tensor")[0]
    behind = round_to_nvfp4(torch.stack((row, torch.full_like(row, 3e4))), "tensor")[0]
    assert not torch.equal(alone, behind)  # a later token has changed an earlier one


@given(rows())
def test_one_row_has_one_scale_either_way(x: Tensor) -> None:
    assert torch.equal(round_to_nvfp4(x[:1], "row"), round_to_nvfp4(x[:1], "tensor"))


@given(rows(-5, 5), st.integers(-40, 40), st.sampled_from(SECONDS))
def test_a_power_of_two_changes_nothing_else(x: Tensor, exponent: int, second: SecondScale) -> None:
    assert torch.equal(round_to_nvfp4(x * 2.0**exponent, second), round_to_nvfp4(x, second) * 2.0**exponent)


def test_normal_numbers_keep_20_decibels() -> None:
    x = torch.randn(512, 256, generator=torch.Generator().manual_seed(0))
    for second in SECONDS:
        noise = (round_to_nvfp4(x, second) - x).square().mean()
        assert 20.0 < float(10 * torch.log10(x.square().mean() / noise)) < 21.5


def test_zeros_and_what_is_not_finite_go_by_rule() -> None:
    assert torch.equal(round_to_nvfp4(torch.zeros(2, 20)), torch.zeros(2, 20))
    x = torch.ones(3, BLOCK)
    x[1, 3], x[2, 5] = math.nan, math.inf
    found = round_to_nvfp4(x)
    assert torch.equal(found[0], x[0]) and found[1].isnan().all() and not found[2].isfinite().any()
    assert found.shape == x.shape


def test_a_tensor_keeps_its_shape_and_type() -> None:
    x = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert round_to_nvfp4(x).dtype == torch.bfloat16 and round_to_nvfp4(x).shape == x.shape
    for second in SECONDS:  # an expert that no token chose
        assert round_to_nvfp4(torch.empty(0, 40), second).shape == (0, 40)
    elements, scales, above = quantise(x, "tensor")
    assert (scales.shape, above.shape) == ((2, 3, 3), (2, 1, 1))
    assert set(elements.flatten().tolist()) <= set(NUMBERS)
    assert torch.equal(E4M3.round(scales), scales)
