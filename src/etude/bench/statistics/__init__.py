"""The statistics of the bench, pure: arrays in, numbers out. `docs/bench.md` explains them on one page."""

from etude.bench.statistics.amounts import amount
from etude.bench.statistics.best import best_of, pass_at_k, powers_of_two
from etude.bench.statistics.bounded import average, difference
from etude.bench.statistics.comparison import comparison
from etude.bench.statistics.interval import Interval, stratified, weighted_mean
from etude.bench.statistics.items import Extremes, discrimination, saturated
from etude.bench.statistics.lite import Lite, NoLite, choose_lite
from etude.bench.statistics.pairs import Difference, compare, holm, matrix, paired, sign_flip
from etude.bench.statistics.pareto import FrontPoint, Measured, front
from etude.bench.statistics.power import Detectable, detectable, pass_share, tasks_needed
from etude.bench.statistics.rank import NoRanking, SplitHalf, spearman, split_half

__all__ = [
    "Detectable",
    "Difference",
    "Extremes",
    "FrontPoint",
    "Interval",
    "Lite",
    "Measured",
    "NoLite",
    "NoRanking",
    "SplitHalf",
    "amount",
    "average",
    "best_of",
    "choose_lite",
    "compare",
    "comparison",
    "detectable",
    "difference",
    "discrimination",
    "front",
    "holm",
    "matrix",
    "paired",
    "pass_at_k",
    "pass_share",
    "powers_of_two",
    "saturated",
    "sign_flip",
    "spearman",
    "split_half",
    "stratified",
    "tasks_needed",
    "weighted_mean",
]
