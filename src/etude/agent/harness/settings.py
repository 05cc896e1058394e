"""Settings of the agent: preset, budgets, tool limits and optional tools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from etude.agent.harness.preset_names import known_preset


class HarnessSettings(BaseModel):
    """Numbers are the laptop's: the nano model's sessions hold 80-250 tokens and at most ten turns. For every other preset `run.limits` derives
    the limits that a recipe leaves out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Annotated[str, AfterValidator(known_preset)] = Field(
        "nano",
        description="tool set and prompts: nano (laptop model), full (its tools, described), or those of large models: "
        "search_replace, patch, minimal; search_replace_v2 has the earlier texts of search_replace; or module:name of a preset of one's own "
        "(docs/extending/presets.md)",
    )
    effort: Literal["low", "medium", "high"] = Field(
        "medium",
        description="how hard to try: given to the model where its format or prompt can state it; low halves turns and tokens, "
        "high doubles them",
    )
    thinking: Literal["family", "cycle", "all"] = Field(
        "family",
        description="how long a model sees its own thinking, where its tokens are rendered here: family (as it was trained), "
        "cycle (until the user's next word), all (always: a message of the user never makes the conversation be rendered again)",
    )
    max_turns: int = Field(
        10,
        ge=1,
        description="turns of the policy, self-summaries not counted; left out with another preset than nano: 40",
    )
    max_tokens_per_turn: int = Field(
        96,
        ge=1,
        description="sampled tokens of one turn; left out with another preset than nano: from the model's context window",
    )
    max_session_tokens: int = Field(
        640,
        ge=1,
        description="tokens of all segments together; beyond it the session ends; left out with another preset than nano: four context windows",
    )
    summary_trigger_tokens: int = Field(
        0, ge=0, description="a segment that holds this many tokens is summarized and a new one starts; 0: never"
    )
    max_summaries: int = Field(4, ge=0, description="self-summaries of one session; after them the segment just grows")
    temperature: float = Field(1.0, ge=0.0, description="sampling temperature")
    tool_timeout_s: float = Field(5.0, gt=0, description="seconds a search or shell command may take")
    test_timeout_s: float = Field(5.0, gt=0, description="seconds the task's test command may take")
    max_tool_lines: int = Field(24, ge=1, description="lines of one tool result; the rest is dropped and counted")
    max_tool_bytes: int = Field(600, ge=32, description="bytes of one tool result; the rest is dropped and counted")
    max_matches: int = Field(6, ge=1, description="lines that grep returns")
    max_command_s: float = Field(
        600.0, gt=0, description="seconds that a call may ask for when it runs a command or waits"
    )
    strict_arguments: bool = Field(
        True, description="refuse arguments of another type than the schema's; else 5 is taken from the text 5"
    )
    tools_off: tuple[str, ...] = Field((), description="tools that are not offered, by the preset's names")
    codebase_search: bool = Field(False, description="offer search by meaning; each rollout then has an index service")
    web: bool = Field(False, description="offer web search and pages; leave off in training and benches")
    lint_delta_s: float = Field(
        0.0,
        ge=0,
        description="seconds that linters may take when a session ends, to count what its edits changed of their findings; "
        "0: not counted",
    )
    glob_order: Literal["path", "mtime"] = Field(
        "path", description="order of files found by name: path (the same everywhere) or mtime (newest first)"
    )

    @classmethod
    def full(cls, **changes: object) -> HarnessSettings:
        """For endpoints: a 128k-token window, so summaries at 80k (a trigger value the Composer posts report).

        Give `preset="search_replace"` (or patch, minimal) for the tools of large models.
        """
        defaults: dict[str, object] = {
            "preset": "full",
            "max_turns": 60,
            "max_tokens_per_turn": 8192,
            "max_session_tokens": 2_000_000,
            "summary_trigger_tokens": 80_000,
            "tool_timeout_s": 60.0,
            "test_timeout_s": 300.0,
            "max_tool_lines": 400,
            "max_tool_bytes": 16_000,
            "max_matches": 100,
            "lint_delta_s": 10.0,
        }
        return cls.model_validate(defaults | changes)
