"""The licence of a file and its evidence: the file's own head, debian/copyright, the package's metadata, a licence text next to it."""

from etude.core.licence.book import LicenceBook, LicenceConflict
from etude.core.licence.expression import family

__all__ = ["LicenceConflict", "LicenceBook", "family"]
