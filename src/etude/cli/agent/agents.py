"""`etude agents`: those in the background, listed, followed, spoken to, stopped, merged and taken away."""

from __future__ import annotations

import json as json_room
import select
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.agent.app.background.record import BackgroundAgent

app = typer.Typer(
    no_args_is_help=True, help="Agents in the background (etude agent --background): each in its own worktree."
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The agent's id, or how it begins.")]
Words = Annotated[str, typer.Argument(metavar="TEXT", help="Message to the agent.")]
# One line of the list.
_SHOWN_CHARS = 60


@app.command("ls")
def ls(json: Json = False) -> Answer:
    """List all agents: running, done, failed, stopped, dead."""
    from etude.agent.app.background.record import list_agents

    rows = [{**berth.to_json(), "state": berth.state} for berth in list_agents()]
    lines = [
        f"{row['id']}  {row['state']:8} {_age(row['created_unix_s']):>5}  {row['branch']:14} "
        + " ".join(row["request"].split())[:_SHOWN_CHARS]
        for row in rows
    ]
    return Answer({"agents": rows}, "\n".join(lines) or 'no agents; etude agent --background -p "…" starts one')


@app.command()
def attach(id: Id, json: Json = False, replay: Annotated[
    bool, typer.Option("--no-follow", help="Only what has happened so far.")] = False,
) -> Answer:  # fmt: skip
    """Follow an agent; what you type steers it. Ctrl-C leaves it at work."""
    from etude.agent.app.background.control import POLL_S, follow

    own = _berth(id)
    tell = _teller(json)
    try:
        for event in follow(own, live=not replay):
            if event is not None:
                tell(event)
            elif not json and sys.stdin.isatty():
                _steer(own, POLL_S)
            else:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        print(f"left agent {own.id} at work", file=sys.stderr)
    return Answer({"id": own.id, "state": own.state}, f"{own.id}: {own.state}")


@app.command()
def say(
    id: Id,
    text: Words,
    queue: Annotated[bool, typer.Option("--queue", help="Queue the text as the agent's next request.")] = False,
    json: Json = False,
) -> Answer:
    """Send a message to a running agent. It reads the message before its next turn, or with --queue when it has finished."""
    from etude.agent.app.background.control import send_message as tell

    own = _berth(id)
    tell(own, text, "queue" if queue else "steer")
    return Answer({"id": own.id}, f"sent to {own.id}")


@app.command()
def compact(id: Id, words: Annotated[
    str, typer.Argument(metavar="[WORDS]", help="Instructions on what the summary must keep.")] = "", json: Json = False,
) -> Answer:  # fmt: skip
    """Let a running agent sum up its conversation before its next turn, and go on from the summary."""
    from etude.agent.app.background.control import send_message as tell

    own = _berth(id)
    tell(own, words, "compact")
    return Answer({"id": own.id}, f"sent to {own.id}")


@app.command()
def stop(id: Id, json: Json = False) -> Answer:
    """Stop a running agent; its work stays."""
    from etude.agent.app.background.control import stop_agent as end

    own = _berth(id)
    end(own)
    return Answer({"id": own.id, "state": own.state}, f"{own.id}: {own.state}")


@app.command()
def resume(
    id: Id,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="Request for the agent.")] = "Go on where you left off.",
    json: Json = False,
) -> Answer:
    """Resume an agent that has ended or was killed, with its whole conversation."""
    from etude.agent.app.background.control import resume_agent

    own = _berth(id)
    resume_agent(own, prompt)
    return Answer({"id": own.id}, f"{own.id} goes on; etude agents attach {own.id}")


@app.command()
def merge(
    id: Id,
    whole: Annotated[
        bool, typer.Option("--merge", help="A merge commit. Default: squashed and staged, you commit.")
    ] = False,
    message: Annotated[str | None, typer.Option("--message", "-m", help="The commit's message.")] = None,
    json: Json = False,
) -> Answer:
    """Merge an agent's work into the current branch. A conflict is refused and changes nothing."""
    from etude.agent.app.background.merge import merge_agent as bring

    own = _berth(id)
    done = bring(own, squash=not whole, message=message)
    how = f"merged as {done.commit[:12]}" if done.commit else "staged; look at git diff --cached, then commit"
    return Answer({"id": own.id, **vars(done)}, f"{len(done.files)} files {how}")


@app.command()
def rm(
    id: Id,
    force: Annotated[bool, typer.Option("--force", help="Remove the agent's work even if it is not merged.")] = False,
    json: Json = False,
) -> Answer:
    """Take away an agent's worktree and branch; its session stays (`etude session forget` removes that)."""
    from etude.agent.app.background.control import remove_agent

    own = _berth(id)
    remove_agent(own, force=force)
    return Answer({"id": own.id}, f"took away {own.id}")


def _berth(named: str) -> BackgroundAgent:
    from etude.agent.app.background.record import find_agent

    return find_agent(named)


def _teller(as_json: bool) -> Any:
    """With --json events go to stderr: stdout holds the one document at the end."""
    if as_json:
        return lambda event: print(json_room.dumps(event), file=sys.stderr)
    from rich.console import Console

    from etude.agent.app.event_printer import EventPrinter

    return EventPrinter(Console())


def _steer(own: BackgroundAgent, wait_s: float) -> None:
    from etude.agent.app.background.control import send_message as tell

    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    if poll.poll(wait_s * 1000) and (line := sys.stdin.readline().strip()):
        tell(own, line)


def _age(created_unix_s: float) -> str:
    seconds = max(0, int(time.time() - created_unix_s))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
