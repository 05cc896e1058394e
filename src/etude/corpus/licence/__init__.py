"""Under which licence a file stands and how that is known: its own head, debian/copyright, the package's metadata, a licence text beside it."""

from etude.corpus.licence.book import Conflict, LicenceBook
from etude.corpus.licence.expression import family

__all__ = ["Conflict", "LicenceBook", "family"]
