"""`etude acp`: the agent for editors that speak the Agent Client Protocol, over stdin and stdout."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

PRESETS = ("search_replace", "patch", "minimal")


def acp(
    model: Annotated[str, typer.Option("--model", envvar="ETUDE_MODEL", help="The endpoint's name of the model.")],
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="OpenAI-compatible endpoint. Default: OPENAI_BASE_URL.")
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="Tools: search_replace, patch or minimal.")
    ] = "search_replace",
    approval: Annotated[
        str, typer.Option("--approval", help="What is asked for at first: never, commands, writes or all.")
    ] = "commands",
    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="TOML whose mcp.NAME tables are your MCP servers.")
    ] = None,
) -> None:
    """Serve the agent to an editor. Its key comes from OPENAI_API_KEY; logs go to stderr."""
    from etude.acp.conversation import Setup
    from etude.acp.permission import is_mode
    from etude.acp.server import serve
    from etude.harness.mcp.config import settings_servers
    from etude.harness.mcp.trust import Trust
    from etude.harness.settings import HarnessSettings
    from etude.link.home import sessions_home
    from etude.policy.openai import OpenAIPolicy

    if preset not in PRESETS:
        raise typer.BadParameter(f"--preset {preset!r} is not for endpoints: {', '.join(PRESETS)}")
    if settings is not None and not settings.is_file():
        raise typer.BadParameter(f"--settings {settings}: there is no such file")
    if not is_mode(approval):
        raise typer.BadParameter(f"--approval {approval!r} is no approval policy: never, commands, writes or all")
    home = sessions_home()
    setup = Setup(
        settings=HarnessSettings.full(preset=preset),
        policy=lambda: OpenAIPolicy(model, base_url=base_url),
        home=home,
        trust=Trust(home.parent / "mcp-approved.json"),
        approval=approval,  # pyright: ignore[reportArgumentType] - one of them
        servers=settings_servers(settings) if settings is not None else (),
    )
    asyncio.run(serve(setup))
