"""Every generator by name, in the order in which a making takes turns between them."""

from __future__ import annotations

from etude.factory.generators.bugs.injection import BugInjection
from etude.factory.generators.combined import CombinedBugs
from etude.factory.generators.deletion.generator import FeatureDeletion
from etude.factory.generators.devops.generator import DevopsRepair
from etude.factory.generators.devops.log_triage import LogTriage
from etude.factory.generators.documentation import Documentation
from etude.factory.generators.generator import Generator
from etude.factory.generators.log_debugging import LogDebugging
from etude.factory.generators.refactor.generator import Refactor
from etude.factory.generators.review import Review
from etude.factory.generators.test_writing import TestWriting

GENERATORS: dict[str, Generator] = {
    each.name: each
    for each in (
        BugInjection(),
        CombinedBugs(),
        LogDebugging(),
        TestWriting(),
        Review(),
        DevopsRepair(),
        Documentation(),
        LogTriage(),
        FeatureDeletion(),
        Refactor(),
    )
}
