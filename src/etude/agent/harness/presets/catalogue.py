"""All implementations of tools, by name: what presets choose from."""

from __future__ import annotations

from etude.agent.harness.tools.apply_patch import ApplyPatch
from etude.agent.harness.tools.codebase_search import CodebaseSearch
from etude.agent.harness.tools.delete import Delete
from etude.agent.harness.tools.edit import Edit
from etude.agent.harness.tools.glob import Glob
from etude.agent.harness.tools.grep import Grep
from etude.agent.harness.tools.job_kill import JobKill
from etude.agent.harness.tools.job_output import JobOutput
from etude.agent.harness.tools.lints import ReadLints
from etude.agent.harness.tools.list_folder import ListFolder
from etude.agent.harness.tools.multi_edit import MultiEdit
from etude.agent.harness.tools.read import Read
from etude.agent.harness.tools.shell import Shell
from etude.agent.harness.tools.todo_write import TodoWrite
from etude.agent.harness.tools.tool import Implementation
from etude.agent.harness.tools.web_fetch import WebFetchTool
from etude.agent.harness.tools.web_search import WebSearchTool
from etude.agent.harness.tools.write import Write

_ALL: tuple[Implementation, ...] = (
    Read(), Write(), Edit(), MultiEdit(), ApplyPatch(), Delete(), ListFolder(), Glob(), Grep(), CodebaseSearch(), ReadLints(),
    Shell(), JobOutput(), JobKill(), TodoWrite(), WebSearchTool(), WebFetchTool(),
)  # fmt: skip
IMPLEMENTATIONS: dict[str, Implementation] = {one.name: one for one in _ALL}
# They change nothing, so that several may run at once, and their answers don't depend on the order.
QUIET = frozenset({"read", "list", "glob", "grep", "codebase_search", "lints", "web_search", "web_fetch"})
