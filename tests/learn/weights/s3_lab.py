"""A real S3 server (rclone, from its wheel) for tests and benchmarks. It checks signatures and MD5s, and heeds no conditions."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KEY, SECRET = "etude-test-key", "etude-test-secret"
BUCKET = "bucket"


@dataclass(frozen=True)
class Server:
    """Where it listens, and the folder whose sub-folders are its buckets."""

    port: int
    root: Path
    host: str = "127.0.0.1"

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What leads boto3 there, and to nothing of the person's own."""
        return {
            "ETUDE_S3_ENDPOINT": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_CONFIG_FILE": str(self.root / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.root / "none"),
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def find_rclone() -> str | None:
    return shutil.which("rclone", path=str(Path(sys.executable).parent)) or shutil.which("rclone")


@contextmanager
def serving(root: Path, inside: Sequence[str] = (), host: str = "127.0.0.1") -> Iterator[Server]:
    """The server over `root`, with one bucket. `inside`: words before the command, e.g. those that lead into a network namespace, where
    `host` is one of its addresses."""
    (root / BUCKET).mkdir(parents=True)
    port = _free_port() if not inside else 9000
    command = [*inside, str(find_rclone()), "serve", "s3", "--addr", f"{host}:{port}", "--auth-key", f"{KEY},{SECRET}"]
    command += ["--config", str(root.parent / "none"), str(root)]
    log_file = root.parent / f"rclone-{root.name}.log"
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(host, port, process, log_file, bool(inside))
            yield Server(port, root, host)
        finally:
            process.terminate()
            process.wait(10)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait(host: str, port: int, process: subprocess.Popen[bytes], log: Path, elsewhere: bool) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if elsewhere:
                if "Starting s3 server" in log.read_text() or "Serving" in log.read_text():
                    return
            else:
                socket.create_connection((host, port), 1).close()
                return
        except OSError:
            pass
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"rclone does not listen: {log.read_text()[-500:]}")
