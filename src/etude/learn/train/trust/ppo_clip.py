"""PPO's clipped surrogate, as the factor that its gradient puts before each token's (Schulman et al. 2017, arXiv 1707.06347).

    J = min(r A, clip(r, 1 - low, 1 + high) A)      dJ/dtheta = A r dlog p where the first is the smaller, else 0

So w = r, and 0 where the token has gone far enough the way its advantage pushes it: r > 1 + high for A > 0, r < 1 - low for A < 0. With
`high` above `low` rare tokens may rise (DAPO, arXiv 2503.14476: 0.2 and 0.28). For A < 0 the surrogate knows no bound above: a token
that other weights hardly ever sampled would count without limit, hence the dual clip (Ye et al. 2020, arXiv 1912.09729: 3).
"""

from __future__ import annotations

from torch import Tensor

from etude.learn.train.trust.settings import TrustSettings

# e to this is far above every bound, and finite: an infinite ratio times an advantage of 0 would be NaN.
LARGEST_LOG_RATIO = 60.0


def weights(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: TrustSettings) -> Tensor:
    """(N,) the ratio or 0. It is 0 for a token to which the sampler gave probability 0: it has no ratio, and without `dual` nothing bounds it."""
    bounds, ratios = settings.ppo_clip, (logprobs - sampler).clamp(max=LARGEST_LOG_RATIO).exp()
    stopped = ((advantages > 0) & (ratios > 1 + bounds.high)) | ((advantages < 0) & (ratios < 1 - bounds.low))
    if bounds.dual is not None:
        stopped |= (advantages < 0) & (ratios > bounds.dual)
    stopped |= sampler.isneginf()
    return ratios.masked_fill(stopped, 0.0)
