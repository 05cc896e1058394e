"""Under which licence a file stands and how that is known: its own head, debian/copyright, the package's metadata, a licence text beside it."""

from etude.core.licence.book import Conflict, LicenceBook
from etude.core.licence.expression import family

__all__ = ["Conflict", "LicenceBook", "family"]
