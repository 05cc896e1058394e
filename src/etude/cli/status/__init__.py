"""`etude runs` and `etude status`: which runs a folder holds, and how far each is. Both only read."""

from etude.cli.status.listing import runs
from etude.cli.status.show import status

__all__ = ["runs", "status"]
