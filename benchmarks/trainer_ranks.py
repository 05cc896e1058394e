"""How much sooner a step is done by more trainer ranks: `python benchmarks/trainer_ranks.py RUN [--ranks 1 2]`.

Trains the recorded batches of an RL run (its `groups/` and `ledger.jsonl`) from the committed SFT checkpoint, a process of one thread for
each rank, over gloo on loopback. The counts of ranks take turns, step by step of the same batches, so that whatever else the machine
does falls on all alike. Prints the median seconds of a step, the ratio to one rank, the dealing's imbalance by expected cost, and how far
the gradient's norm is from that of one rank.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.rl.ledger import RlLedger, fold
from etude.rl.settings import RlSettings

CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "sft-nano"
HOST = "127.0.0.1"


def rank_process(pipe: Connection, folder: Path, settings: RlSettings, rank: int, address: str) -> None:
    """Trains the groups that come, until None does."""
    from etude.learn.train.gloo_ranks import GlooRanks
    from etude.learn.train.ranks import ALONE
    from etude.rl.learner import Learner

    ranks = GlooRanks(address, HOST, rank, settings.ranks, 300.0) if settings.ranks > 1 else ALONE
    learner = Learner(CHECKPOINT, folder, settings, 1, ranks)
    while (groups := pipe.recv()) is not None:
        trained = learner.train(groups)
        pipe.send((trained.busy_s, trained.figures, trained.digest))


class Team:
    """The ranks of one count."""

    def __init__(self, run: Path, settings: RlSettings) -> None:
        from etude.learn.train.gloo_ranks import Rendezvous

        self.folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        (self.folder / "groups").symlink_to(run.resolve() / "groups")
        self._meeting = Rendezvous(HOST)
        self.seconds: list[float] = []
        self.figures: list[dict[str, Any]] = []
        self._pipes: list[Connection] = []
        spawn = multiprocessing.get_context("spawn")
        for rank in range(settings.ranks):
            ours, theirs = spawn.Pipe()
            arguments = (theirs, self.folder, settings, rank, self._meeting.address)
            spawn.Process(target=rank_process, args=arguments, daemon=True).start()
            self._pipes.append(ours)

    def train(self, groups: list[int]) -> None:
        for pipe in self._pipes:
            pipe.send(groups)
        found = [pipe.recv() for pipe in self._pipes]
        assert len({digest for _, _, digest in found}) == 1
        self.seconds.append(max(seconds for seconds, _, _ in found))
        self.figures.append(found[0][1])

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of an RL run")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    recipe = read_recipe([find_recipe("laptop")], [])
    update = recipe.rl.update.model_copy(update={"temperature": recipe.harness.temperature})
    teams = {
        n: Team(options.run, recipe.rl.model_copy(update={"update": update, "ranks": n})) for n in options.ranks
    }  # fmt: skip
    batches = fold(RlLedger(options.run / "ledger.jsonl").entries).batches
    for step in sorted(batches)[: options.steps]:
        for team in teams.values():
            team.train(batches[step])
    first = teams[options.ranks[0]]
    print(
        "| ranks | seconds a step | of one | imbalance, median | gradient's norm, off by at most |\n|---|---|---|---|---|"
    )
    for n, team in teams.items():
        ratio = median(mine / one for mine, one in zip(team.seconds, first.seconds, strict=True))
        even = median(figures.get("rank_imbalance", 1.0) for figures in team.figures)
        pairs = zip(team.figures, first.figures, strict=True)
        off = max(abs(a["grad_norm"] / b["grad_norm"] - 1) for a, b in pairs)
        print(f"| {n} | {median(team.seconds):.2f} | {ratio:.2f} | {even:.3f} | {off:.1e} |")
        team.close()


if __name__ == "__main__":
    main()
