"""The certificates that connections are checked with: httpx' own, or those of SSL_CERT_FILE and SSL_CERT_DIR."""

from __future__ import annotations

import os
import ssl

from etude.sandbox.egress.environment_proxy import ConnectionSettingError

_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


class CertificateError(ConnectionSettingError):
    """Certificates that can't be read."""


def certificates() -> ssl.SSLContext:
    """Raises CertificateError for a file or a folder that can't be read as certificates."""
    import httpx

    try:
        return httpx.create_ssl_context(trust_env=True)
    except OSError as error:  # ssl's errors are among them
        named = next(
            (f"{name}={os.environ[name]}" for name in _VARIABLES if os.environ.get(name)), ""
        )  # httpx reads the first
        reason = error.strerror or str(error)
        raise CertificateError(
            f"the certificates of {named or 'this machine'} can't be read ({reason}); name a file of PEM certificates, or unset it"
        ) from error
