"""MXFP8 by arithmetic is the format: what it holds comes back unchanged, what it does not is off by at most what its bits allow, and torchao
says the same (`torchao.json`: its words on chosen blocks, recorded)."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from etude.learn.formats.mxfp8 import BLOCK, Scaling, dequantise, quantise, round_to_mxfp8
from etude.learn.formats.small_floats import E4M3

SCALINGS: tuple[Scaling, ...] = ("ceil", "floor")


def e4m3(code: int) -> float:
    """The number of a code by the specification's formula (OCP MX v1.0, 5.3.1)."""
    sign, exponent, mantissa = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (2.0**-6 * mantissa / 8 if exponent == 0 else 2.0 ** (exponent - 7) * (1 + mantissa / 8))


NUMBERS = sorted({e4m3(code) for code in range(256) if code & 0x7F != 0x7F})


def weights(low: int = -30, high: int = 30) -> st.SearchStrategy[Tensor]:
    """Rows of numbers of chance magnitudes, of which some lie on one another's scale."""
    number = st.builds(lambda m, e: m * 2.0**e, st.floats(-2, 2, width=32), st.integers(low, high)) | st.just(0.0)
    return st.lists(number, min_size=1, max_size=3 * BLOCK).map(lambda row: torch.tensor(row, dtype=torch.float32))


def test_torchs_codes_are_the_specifications():
    """So that they may stand for it below."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    for code, value in enumerate(codes.tolist()):
        assert value == e4m3(code) or (math.isnan(value) and math.isnan(e4m3(code))), code
    assert NUMBERS[-1] == E4M3.largest and len(NUMBERS) == 253


@given(st.floats(-600, 600, width=32))
def test_an_element_is_the_nearest_number_and_of_two_the_even_one(y: float):
    found = float(E4M3.round(torch.tensor([y])))
    distance = lambda value: abs(Fraction(value) - Fraction(y))
    nearest = min(distance(value) for value in NUMBERS)
    ties = [value for value in NUMBERS if distance(value) == nearest]
    assert found in ties
    if len(ties) == 2:
        even = [value for value in ties if (torch.tensor(value).to(torch.float8_e4m3fn).view(torch.uint8) & 1) == 0]
        assert found in even


def test_elements_between_any_two_neighbours_are_as_torch_casts_them():
    low, high = torch.tensor(NUMBERS[:-1]), torch.tensor(NUMBERS[1:])
    middle = (low + high) / 2
    for y in (middle, torch.nextafter(middle, high), torch.nextafter(middle, low), low, high):
        assert torch.equal(E4M3.round(y), y.to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scales_and_elements_are_torchaos(scaling: Scaling):
    result = json.loads((Path(__file__).parent / "torchao.json").read_text())
    x = torch.tensor(result["bits"], dtype=torch.int32).view(torch.float32)
    elements, exponents = quantise(x, scaling)
    theirs = torch.tensor(result[scaling]["elements"], dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    for block, code in enumerate(result[scaling]["scales"]):
        if code == 255:  # NaN
            assert elements[block].isnan().all(), block
            continue
        assert int(exponents[block]) + 127 == code, block
        assert torch.equal(elements[block], theirs[block]), block


@given(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=80), st.integers(-100, 100), st.sampled_from(SCALINGS))
def test_what_the_format_holds_comes_back_unchanged(elements: list[float], exponent: int, scaling: Scaling):
    row = [*elements[:-1], E4M3.largest]  # with the block's largest magnitude at the top, its scale is the given one
    blocks = [row[at : at + BLOCK] for at in range(0, len(row), BLOCK)]
    x = torch.tensor([value for block in blocks for value in [*block[:-1], E4M3.largest]]) * 2.0**exponent
    assert torch.equal(round_to_mxfp8(x, scaling), x)


@given(weights(), st.sampled_from(SCALINGS))
def test_rounding_twice_is_rounding_once(x: Tensor, scaling: Scaling):
    once = round_to_mxfp8(x, scaling)
    assert torch.equal(round_to_mxfp8(once, scaling), once)


@given(weights())
def test_an_element_is_off_by_at_most_a_sixteenth_of_itself_or_its_blocks_finest_step(x: Tensor):
    """Half a step: 2^-4 of the element where it is normal, else 2^-10 of the scale, which is under 2^-10 / 224 of the block's largest, if it
    is not the least scale there is."""
    elements, exponents = quantise(x)
    found = dequantise(elements, exponents)
    for at in range(len(x)):
        block = x[at // BLOCK * BLOCK : (at // BLOCK + 1) * BLOCK]
        amax, scale = float(block.abs().max()), 2.0 ** int(exponents[at // BLOCK])
        bound = max(abs(float(x[at])) / 16, scale / 1024)
        assert abs(float(found[at] - x[at])) <= bound
        assert scale == 2.0**-127 or scale / 1024 <= amax / 224 / 1024 * (1 + 1e-6)


@given(weights(-60, 60))
def test_a_scale_is_the_least_under_which_nothing_saturates(x: Tensor):
    _, exponents = quantise(x)
    for number, exponent in enumerate(exponents.tolist()):
        amax = Fraction(float(x[number * BLOCK : (number + 1) * BLOCK].abs().max()))
        limit = 448 * Fraction(2) ** exponent
        assert amax <= limit and (amax > limit / 2 or exponent == -127)


@given(weights())
def test_blocks_know_nothing_of_each_other(x: Tensor):
    alone = [round_to_mxfp8(x[at : at + BLOCK]) for at in range(0, len(x), BLOCK)]
    assert torch.equal(round_to_mxfp8(x), torch.cat(alone))
    assert torch.equal(round_to_mxfp8(torch.stack([x, -x])), torch.stack([round_to_mxfp8(x), -round_to_mxfp8(x)]))


def test_zeros_subnormals_and_what_is_not_finite_go_by_rule():
    zeros, exponents = quantise(torch.zeros(BLOCK))
    assert torch.equal(zeros, torch.zeros(BLOCK)) and exponents.tolist() == [-127]
    least = torch.zeros(BLOCK)
    least[0], least[1] = 2.0**-130, 2.0**-149  # subnormal in fp32: the least scale is 2^-127
    elements, exponents = quantise(least)
    assert exponents.tolist() == [-127] and elements[:2].tolist() == [2.0**-3, 0.0]
    assert dequantise(elements, exponents)[0] == 2.0**-130
    broken = torch.ones(2, BLOCK)
    broken[0, 7], broken[1, 7] = math.nan, -math.inf
    found = round_to_mxfp8(broken)
    assert found[0].isnan().all()
    assert found[1, 7] == -math.inf and found[1, :7].tolist() == [0.0] * 7
    large = torch.full((BLOCK,), torch.finfo(torch.float32).max)
    assert quantise(large)[1].tolist() == [120] and round_to_mxfp8(large)[0] == math.inf  # 256 * 2^120 is no fp32
    assert round_to_mxfp8(torch.tensor([500.0]), "floor").item() == 448.0
    assert round_to_mxfp8(torch.tensor([500.0]), "ceil").item() == 512.0


def test_a_tensor_keeps_its_shape_and_type():
    x = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = round_to_mxfp8(x)
    assert found.shape == x.shape and found.dtype == torch.bfloat16
    assert quantise(x)[1].shape == (2, 3, 2)
