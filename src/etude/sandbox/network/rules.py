"""A spec's network as rules of the egress proxy, and the environment variables that announce it to programs inside. Pure."""

from __future__ import annotations

from etude.sandbox.egress.errors import BadRule
from etude.sandbox.egress.packages.rule import PackageFilter, moment, npm_name, pip_name
from etude.sandbox.egress.policy import AllowList
from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.inside.cell import DOOR
from etude.sandbox.spec import Network, PackageRule

URL = f"http://{DOOR[0]}:{DOOR[1]}"
EVERY = "*"
_PROXY = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
_NO_PROXY = ("no_proxy", "NO_PROXY")


def require(network: Network) -> None:
    """Raises UserError for what makes no sense, Unsupported for what no sandbox of its own root gets."""
    if network.mode == "host":
        raise Unsupported("network 'host': a sandbox has the machine's own network only around a folder of the host")
    if network.mode != "allowlist" and (network.hosts or network.packages):
        raise UserError(f"network {network.mode!r} with hosts or packages: they need mode 'allowlist'")
    kinds = [rule.kind for rule in network.packages]
    if len({*kinds}) < len(kinds):
        raise UserError(f"two package rules of one kind among {kinds}: name all packages in one")
    policy(network)
    for rule in network.packages:
        named_rule(rule)


def policy(network: Network) -> AllowList:
    """Raises UserError."""
    try:
        return AllowList.parse(network.hosts)
    except BadRule as problem:
        raise UserError(f"network: {problem}") from None


def named_rule(rule: PackageRule) -> PackageFilter:
    """Raises UserError."""
    try:
        normal = pip_name if rule.kind == "pip" else npm_name
        until = moment(rule.until) if rule.until else None
        every = rule.names == (EVERY,)
        names = frozenset[str]() if every else frozenset(map(normal, rule.names))
        return PackageFilter(names, until, frozenset(map(normal, rule.deny)), every)
    except BadRule as problem:
        raise UserError(f"network: package rule for {rule.kind}: {problem}") from None


def environment(network: Network) -> dict[str, str]:
    """Variables by which programs inside find the door; a spec's own come on top."""
    if network.mode != "allowlist":
        return {}
    found = {**dict.fromkeys(_PROXY, URL), **dict.fromkeys(_NO_PROXY, f"{DOOR[0]},localhost")}
    for rule in network.packages:
        if rule.kind == "pip":
            found["PIP_INDEX_URL"] = found["UV_DEFAULT_INDEX"] = f"{URL}/pip/simple/"
        else:
            found["npm_config_registry"] = f"{URL}/npm/"
    return found
