"""Firecracker's API: HTTP with JSON over its UNIX socket. What it refuses is an InfraError with its own words."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from etude.sandbox.errors import InfraError

_PATIENCE_S = 10.0  # a request takes ms; a snapshot as long as it takes to write the memory


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, patience_s: float) -> None:
        super().__init__("localhost", timeout=patience_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Api:
    """One microVM's. Requests follow one another; each has a connection of its own."""

    def __init__(self, path: Path, patience_s: float = _PATIENCE_S) -> None:
        self._path, self._patience_s = path, patience_s

    def answers(self) -> bool:
        """Whether somebody listens yet: the socket is there a moment before."""
        connection = _Connection(self._path, self._patience_s)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        finally:
            connection.close()
        return True

    def machine(self, cpus: int, memory_mb: int) -> None:
        self._put("machine-config", vcpu_count=cpus, mem_size_mib=memory_mb)

    def boot_source(self, kernel: str, arguments: str) -> None:
        self._put("boot-source", kernel_image_path=kernel, boot_args=arguments)

    def drive(self, name: str, path: str, *, root: bool = False) -> None:
        """Read-only: what is written inside goes to memory."""
        self._put(f"drives/{name}", drive_id=name, path_on_host=path, is_root_device=root, is_read_only=True)

    def vsock(self, number: int, path: str) -> None:
        self._put("vsock", guest_cid=number, uds_path=path)

    def start(self) -> None:
        self._put("actions", action_type="InstanceStart")

    def pause(self) -> None:
        self._ask("PATCH", "vm", {"state": "Paused"})

    def resume(self) -> None:
        self._ask("PATCH", "vm", {"state": "Resumed"})

    def write_snapshot(self, state: str, memory: str) -> None:
        """Of a paused one."""
        self._put("snapshot/create", snapshot_type="Full", snapshot_path=state, mem_file_path=memory)

    def load_snapshot(self, state: str, memory: str, *, resume: bool) -> None:
        """Into one that was not started. Its vsock connections are gone."""
        backend = {"backend_type": "File", "backend_path": memory}
        self._put("snapshot/load", snapshot_path=state, mem_backend=backend, resume_vm=resume)

    def state(self) -> str:
        """Not started, Running or Paused."""
        return str(self._ask("GET", "", None).get("state"))

    def _put(self, what: str, **fields: Any) -> None:
        self._ask("PUT", what, fields)

    def _ask(self, verb: str, what: str, body: dict[str, Any] | None) -> dict[str, Any]:
        connection = _Connection(self._path, self._patience_s)
        said = f"firecracker's API, {verb} /{what}"
        try:
            text = None if body is None else json.dumps(body)
            connection.request(
                verb, f"/{what}", text, {"Content-Type": "application/json", "Accept": "application/json"}
            )
            answer = connection.getresponse()
            data = answer.read()
            found = json.loads(data) if data else {}
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise InfraError(f"{said}: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if not isinstance(found, dict) or answer.status >= 300:
            fault = found.get("fault_message", "") if isinstance(found, dict) else found
            raise InfraError(f"{said}: {answer.status} {fault}")
        return found
