"""Greedy answers to many prompts, each ended by its own rule: what the comparison of bases asks, not a policy.

The rule looks at the tokens so far, some at a time (a closing fence is several tokens in most vocabularies, so it is no stop id).
A session goes on in its slot: asking again costs one token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.causal_lm import CausalLM

AT_ONCE = 32  # tokens between two looks at an answer: half of them on average are for nothing

Over = Callable[[int, list[int]], bool]  # (prompt number, its tokens so far) -> enough


def greedy(
    model: CausalLM,
    prompts: Sequence[Sequence[int]],
    most_tokens: Sequence[int],
    over: Over,
    *,
    batch: int = 8,
    done: Callable[[int], None] = lambda count: None,
) -> list[list[int]]:
    """The likeliest next tokens of each prompt, until `over` or as many as `most_tokens` says. `done` hears how many are finished.

    Raises PolicyError for a prompt that with its answer is longer than the model's positions, or one that the model gives no finite logits for.
    """
    if not prompts:
        return []
    longest = max(len(prompt) + most for prompt, most in zip(prompts, most_tokens, strict=True))
    core = EngineCore(model, EngineSettings(max_slots=batch, max_batch=batch, max_len=longest, share_prefix=False))  # pyright: ignore[reportCallIssue]
    answers: list[list[int]] = [[] for _ in prompts]
    waiting, tickets, finished = list(reversed(range(len(prompts)))), {}, 0

    def ask(n: int) -> None:
        ids = tuple((*prompts[n], *answers[n]))
        count = min(AT_ONCE, most_tokens[n] - len(answers[n]))
        tickets[core.submit(Request(str(n), (), prompt_ids=ids, max_tokens=count, temperature=0.0))] = n

    while waiting or tickets:
        while waiting and len(tickets) < batch:
            ask(waiting.pop())
        for ticket, completion in core.step():
            n = tickets.pop(ticket)
            answers[n] += _ids(completion)
            if len(answers[n]) < most_tokens[n] and not over(n, answers[n]):
                ask(n)
                continue
            core.release(str(n))
            finished += 1
            done(finished)
    return answers


def _ids(completion: Completion) -> list[int]:
    """Raises PolicyError where the engine gave the request up."""
    assert completion.tokens is not None
    if completion.finish == "abort":
        raise PolicyError(completion.problem)
    return completion.tokens.ids
