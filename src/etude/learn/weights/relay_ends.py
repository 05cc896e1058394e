"""How a relay opens its two stores: over a link that may fall silent a request is given up soon, and asked again by the relay itself."""

from __future__ import annotations

from pathlib import Path

from etude.learn.weights.bucket import ObjectBucket, open_bucket
from etude.learn.weights.errors import BadStore
from etude.learn.weights.store import WeightStore

# botocore's own tries, and how long an answer may be silent: a line that was lost for minutes is used again within as long.
ATTEMPTS, READ_S = 2, 20.0


def source_store(place: str) -> WeightStore:
    """Raises BadStore for what is no place of weights, FileNotFoundError for a folder that is not there."""
    if "://" not in place and not Path(place).is_dir():
        raise FileNotFoundError(
            f"{place} is no folder; give the run's store, such as runs/laptop/rl/weights, or s3://bucket/prefix"
        )
    return WeightStore(_impatient(place))


def target_store(place: str) -> WeightStore:
    return WeightStore(_impatient(place))


def _impatient(place: str) -> ObjectBucket:
    try:
        if place.startswith("s3://"):
            from etude.learn.weights.s3 import S3Bucket

            return S3Bucket.at(place, attempts=ATTEMPTS, read_s=READ_S)
        return open_bucket(place if "://" in place else Path(place))
    except ValueError as error:
        raise BadStore(str(error)) from error
