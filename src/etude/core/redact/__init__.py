"""Secrets and personal data out of the texts, placeholders in: see `redaction.redact`."""
