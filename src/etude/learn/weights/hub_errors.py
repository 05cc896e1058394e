"""What goes wrong between this machine and a model hub, as one line with a remedy. No token and no header is ever part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from etude.learn.weights.hub_name import HubError, HubName

OFFLINE_REMEDY = "run `etude model fetch {name}` where there is a network, or set HF_HUB_OFFLINE=0"


@contextmanager
def hub_errors(name: HubName, access: str = "read") -> Iterator[None]:
    """Errors of the library and of the network as HubError. `access`: what the token has to allow, "read" or "write"."""
    try:
        yield
    except HubError:
        raise
    except LocalEntryNotFoundError as error:
        cause = error.__cause__
        raise HubError(_describe(name, cause if isinstance(cause, Exception) else error, access)) from None
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx2.HTTPError, httpx2.StreamError) as error:
        raise HubError(_describe(name, error, access)) from None
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise HubError(
            f"the hub's cache {constants.HF_HUB_CACHE} can't be used{place}: {error.strerror or type(error).__name__}; free space, or set "
            "HF_HUB_CACHE to a folder that can be written"
        ) from None


def _describe(name: HubName, error: Exception, access: str) -> str:
    if access == "write" and isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403, 404):
        return _describe_status(name, 403, access)
    if isinstance(error, GatedRepoError):
        return f"{name.repository} is gated: accept its terms at {constants.ENDPOINT}/{name.repository}, then set HF_TOKEN to a token of that account"
    if isinstance(error, RepositoryNotFoundError):
        return (
            f"there is no folder {name.repository} here and no repository of this name at {constants.ENDPOINT}, or it is private: check the "
            "name; a private one needs a token in HF_TOKEN"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{name.repository} has no revision {name.revision!r}: give a branch, a tag or a whole commit hash that it has"
    if isinstance(error, DisabledRepoError):
        return f"{name.repository} is disabled at {constants.ENDPOINT}: take another repository"
    if isinstance(error, HfHubHTTPError):
        return _describe_status(name, error.response.status_code, access)
    if isinstance(error, OfflineModeIsEnabled):
        return f"HF_HUB_OFFLINE is set and the cache lacks files of {name}: {OFFLINE_REMEDY.format(name=name)}"
    slow = isinstance(error, httpx2.TimeoutException)
    what = "does not answer in time" if slow else "can't be reached"
    return (
        f"the hub {constants.ENDPOINT} {what} ({type(error).__name__}) for {name}: check network, proxy and HF_ENDPOINT, then run the same "
        "command again, what has arrived is kept; HF_HUB_OFFLINE=1 takes what the cache holds"
    )


def _describe_status(name: HubName, status: int, access: str) -> str:
    if status in (401, 403):
        return (
            f"the hub refuses access to {name.repository} (HTTP {status}): set HF_TOKEN to a token that may {access} it; one that is set is not "
            "valid for that"
        )
    if status == 429:
        return f"the hub limits requests (HTTP 429) for {name.repository}: wait some minutes, or set HF_TOKEN for a higher limit"
    return f"the hub {constants.ENDPOINT} answers HTTP {status} for {name}: try again later; HF_HUB_OFFLINE=1 takes what the cache holds"
