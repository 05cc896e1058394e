"""Keys that tell themselves apart by a prefix or a frame their issuer gave them: the precise part of the search for secrets.

A rule has a gate, a literal that is looked for first (a memory scan, 0.3 to 0.6 ns a character); its pattern runs only where the gate is
in the text. Most formats share two cheaper gates still: twenty letters after `_`, or eighteen after `-`.
Forms: GitHub (since 2021; app tokens since 2026 of any length with dots), GitLab (routable ones have two dotted tails), Slack, Stripe, Google,
RFC 7519, npm, PyPI (a macaroon whose first bytes name the site), Twilio, SendGrid, OpenAI ("T3BlbkFJ" is the company's name in base64),
Anthropic, Hugging Face, Azure, as their issuers and the public scanners' rule sets describe them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from etude.core.redact.finding import Finding
from etude.core.redact.randomness import token_is_drawn

UNDERSCORED = re.compile(r"_[A-Za-z0-9]{20}")
HYPHENED = re.compile(r"-[A-Za-z0-9][\w-]{17}")


class SecretRule(NamedTuple):
    """`pattern`'s group "value" (or all of it) goes, where `check` says that it is no stand-in."""

    kind: str
    gate: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool] = token_is_drawn


def _rule(kind: str, gate: str, pattern: str, check: Callable[[str], bool] = token_is_drawn) -> SecretRule:
    return SecretRule(kind, gate, re.compile(rf"(?<![A-Za-z0-9_])(?:{pattern})(?![A-Za-z0-9])"), check)


def _is_jwt(value: str) -> bool:
    """The first part must be a header: a JSON object that names an algorithm."""
    header = value.partition(".")[0]
    try:
        fields = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and "alg" in fields


AFTER_UNDERSCORE = (
    *(_rule("github_token", f"gh{c}_", rf"gh{c}_[A-Za-z0-9]{{36,255}}") for c in "pour"),
    _rule("github_token", "ghs_", r"ghs_[A-Za-z0-9_.-]{35,}[A-Za-z0-9_-]"),
    _rule("github_token", "github_pat_", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _rule("stripe_key", "k_live_", r"[rs]k_live_[A-Za-z0-9]{20,247}"),
    _rule("npm_token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _rule("huggingface_token", "hf_", r"hf_[A-Za-z0-9]{34}"),
)
AFTER_HYPHEN = (
    _rule(
        "gitlab_token",
        "gl",
        r"gl(?:pat|dt|rt|ptt|cbt|ft|soat|oas|agent|imt)-[\w-]{20,300}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",
    ),
    _rule("slack_token", "xox", r"(?:xoxe\.)?xox[abceoprs]-(?=[A-Za-z-]{0,12}[0-9])[A-Za-z0-9-]{15,250}"),
    _rule("slack_token", "xapp-", r"xapp-[0-9]-[A-Z0-9]{6,}-[0-9]{6,}-[A-Za-z0-9]{20,}"),
    _rule("google_oauth", "GOCSPX-", r"GOCSPX-[\w-]{28}"),
    _rule("pypi_token", "pypi-", r"pypi-AgE[\w-]{70,}"),
    _rule("anthropic_key", "sk-ant-", r"sk-ant-[a-z]{2,8}[0-9]{2}-[\w-]{80,120}"),
    _rule("openai_key", "T3BlbkFJ", r"sk-[\w-]{20,100}T3BlbkFJ[\w-]{20,100}"),
    _rule("openai_key", "sk-", r"sk-(?:[A-Za-z0-9]{48}|or-v1-[0-9a-f]{64})"),
)
ANYWHERE = (
    _rule("jwt", "eyJ", r"eyJ[\w-]{12,}\.eyJ[\w-]{8,}\.[\w-]{20,}", _is_jwt),
    _rule("azure_key", "AccountKey=", r"AccountKey=(?P<value>[A-Za-z0-9+/]{86}==)"),
    _rule("azure_key", "AccessKey=", r"SharedAccessKey=(?P<value>[A-Za-z0-9+/]{43}=)"),
    _rule("slack_webhook", "hooks.slack", r"hooks\.slack\.com/\w{4,12}/(?P<value>T\w{6,12}/\w{6,14}/\w{16,})"),
)
# These begin with one capital each, so that two scans for a single character serve four forms.
BY_CAPITAL = (
    re.compile(r"A(?<![A-Za-z0-9_]A)(?:(?P<aws_key>[KS]IA[A-Z2-7]{16})|(?P<google_key>Iza[\w-]{35}))(?![A-Za-z0-9])"),
    re.compile(
        r"S(?<![A-Za-z0-9_]S)(?:(?P<twilio_key>K[0-9a-f]{32})|(?P<sendgrid_key>G\.[\w-]{22}\.[\w-]{43}))(?![A-Za-z0-9])"
    ),
)
URL_PASSWORD = re.compile(r"://(?P<user>[^\s/:@\"'<>\[\]{}]*):(?P<value>[^\s/:@\"'<>{}\\`]{3,200})@(?P<host>[\w.-]*)")
# Placeholders for a password in an address: the defaults of databases and the words of manuals.
URL_STAND_IN = re.compile(
    r"(?:user|name|my|your|the|db|some|new|old)?[_-]?(?:pass(?:w(?:or)?d|wd)?|pw[d]?|secret|token|key|login)s?[0-9]?|"
    r"postgres|mysql|root|admin|guest|test(?:ing|er)?[0-9]*|x+|\*+|\.+|[$%].*|foo|ba[rz]|changeme|example|port|(?:0|1234?5?6?)",
    re.IGNORECASE,
)
URL_HOST_STAND_IN = re.compile(
    r"(?:.*\.)?(?:example(?:\.\w+)?|test|invalid|localhost)|host(?:name)?|127\..*", re.IGNORECASE
)


def find_tokens(text: str) -> Iterator[Finding]:
    """Keys of known forms, and passwords within addresses."""
    rules = ANYWHERE
    if UNDERSCORED.search(text):
        rules += AFTER_UNDERSCORE
    if HYPHENED.search(text):
        rules += AFTER_HYPHEN
    for rule in rules:
        if rule.gate in text:
            group = "value" if "value" in rule.pattern.groupindex else 0
            for match in rule.pattern.finditer(text):
                if rule.check(match[group]):
                    yield Finding(*match.span(group), rule.kind)
    for pattern in BY_CAPITAL:
        for match in pattern.finditer(text):
            if match.lastgroup and token_is_drawn(match[0]):
                yield Finding(*match.span(), match.lastgroup)
    for match in URL_PASSWORD.finditer(text):
        stand_in = URL_STAND_IN.fullmatch(match["value"]) or URL_HOST_STAND_IN.fullmatch(match["host"])
        if not stand_in and match["value"] != match["user"]:
            yield Finding(*match.span("value"), "url_password")
