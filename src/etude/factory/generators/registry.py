"""Every generator by name, in the order in which a making takes turns between them."""

from __future__ import annotations

from etude.factory.generators.generator import Generator

GENERATORS: dict[str, Generator] = {}
