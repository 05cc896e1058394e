"""Services that tasks ask for by name. Their data lies in the sandbox' own files, so that a fork has it too.

PostgreSQL and Redis are the programs of the root file system (the host's system folders, or an image); the object store and the log
service are small programs of ours that need a Python inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources

from etude.sandbox.errors import UserError
from etude.sandbox.spec import ServiceSpec

POSTGRES_PORT, REDIS_PORT, STORE_PORT, LOGS_PORT = 5432, 6379, 9000, 9428
_DATA = "/tmp/services"
# A cluster on first start; after a fork the files are those of a crash, from which it recovers. No fsync: the disk is memory.
_TUNED = (
    "fsync=off",
    "max_connections=20",
    "shared_buffers=8MB",
    "min_wal_size=2MB",
    "max_wal_size=8MB",
    "dynamic_shared_memory_type=mmap",
)
_POSTGRES = f"""
PATH=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1):$PATH
D={_DATA}/postgres
if [ ! -s $D/PG_VERSION ]; then
    mkdir -p {_DATA}
    initdb -D $D -U postgres -A trust -E UTF8 --no-sync --wal-segsize=1 >/tmp/initdb.log 2>&1 || {{ cat /tmp/initdb.log; exit 1; }}
fi
rm -f $D/postmaster.pid
exec postgres -D $D -k /tmp -p {POSTGRES_PORT} -c listen_addresses=127.0.0.1 {" ".join(f"-c {word}" for word in _TUNED)}
"""
_REDIS = f"""
mkdir -p {_DATA}/redis
exec redis-server --bind 127.0.0.1 --port {REDIS_PORT} --dir {_DATA}/redis --save "" --appendonly yes --appendfsync no
"""


def postgres() -> ServiceSpec:
    """PostgreSQL at 127.0.0.1:5432, user postgres, no password. Wants `disk_mb` of 128 and `pids` of 32 at least."""
    return ServiceSpec(
        "postgres", ("/bin/sh", "-c", _POSTGRES), health=_answers(POSTGRES_PORT, "pg_isready -q -h 127.0.0.1")
    )


def redis() -> ServiceSpec:
    """Redis at 127.0.0.1:6379."""
    return ServiceSpec(
        "redis", ("/bin/sh", "-c", _REDIS), health=_answers(REDIS_PORT, "redis-cli -h 127.0.0.1 ping | grep -q PONG")
    )


def object_store() -> ServiceSpec:
    """An S3-like store at http://127.0.0.1:9000: buckets and objects by path, listings, no signatures."""
    return _program("object_store", STORE_PORT)


def log_service() -> ServiceSpec:
    """A log service at http://127.0.0.1:9428: lines of JSON in, queries by text, field and time out."""
    return _program("log_service", LOGS_PORT)


PRESETS: dict[str, Callable[[], ServiceSpec]] = {
    "postgres": postgres,
    "redis": redis,
    "object_store": object_store,
    "log_service": log_service,
}


def by_name(name: str) -> ServiceSpec:
    """Raises UserError for a name that there is not."""
    if name not in PRESETS:
        raise UserError(f"there is no service {name!r}; take one of {', '.join(PRESETS)}, or declare its command")
    return PRESETS[name]()


def seed_service(name: str, files: Mapping[str, str]) -> ServiceSpec:
    """The service with these files in its data folder before it starts: records of the log service (`log.jsonl`), objects of the store.
    Raises UserError."""
    service = by_name(name)
    strange = [path for path in files if path.startswith("/") or ".." in path.split("/")]
    if strange:
        raise UserError(f"{name} can't start with {strange[0]!r}: give a path below its data folder")
    own = tuple((f"{_DATA}/{name}/{path}", text.encode()) for path, text in files.items())
    return replace(service, files=(*service.files, *own))


def _answers(port: int, command: str) -> tuple[str, ...]:
    path = "PATH=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1):$PATH; " if port == POSTGRES_PORT else ""
    return ("/bin/sh", "-c", path + command)


def _program(name: str, port: int) -> ServiceSpec:
    path = f"{_DATA}/{name}.py"
    code = resources.files("etude.sandbox.services.programs").joinpath(f"{name}.py").read_bytes()
    probe = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/-/health', timeout=2)"
    return ServiceSpec(
        name,
        ("python3", "-S", path, str(port), f"{_DATA}/{name}"),
        files=((path, code),),
        health=("python3", "-S", "-c", probe),
    )
