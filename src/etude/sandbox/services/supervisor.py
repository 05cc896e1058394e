"""Starts a sandbox' services, asks them whether they serve, and keeps the end of what they print.

Promise: a sandbox with services is handed out when all of them serve, or not at all. They end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from etude.sandbox.errors import SandboxError, ServiceFailed
from etude.sandbox.protocol import Process, Sandbox
from etude.sandbox.spec import SandboxSpec, ServiceSpec, ServiceStatus

_SCRIPT_TIMEOUT_S = 120.0
_HEALTH_TIMEOUT_S = 5.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 0.5  # between two health checks, doubled each time
_KEPT_BYTES = 4096  # of what a service prints


class _RunningService:
    """One running service."""

    def __init__(self, service: ServiceSpec, process: Process) -> None:
        self.service, self.process = service, process
        self._output = b""
        self._reading = asyncio.create_task(self._read())

    @property
    def ended(self) -> bool:
        return self._reading.done()

    @property
    def output(self) -> str:
        return self._output.decode(errors="replace").strip()

    async def _read(self) -> None:
        with contextlib.suppress(SandboxError):  # the sandbox ended, and the service with it
            async for chunk in self.process.stream():
                self._output = (self._output + chunk.data)[-_KEPT_BYTES:]


class ServiceSupervisor:
    """The services of one sandbox. `start` once, then `status` at any time."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._running: list[_RunningService] = []

    async def start(self, spec: SandboxSpec) -> None:
        """In the order in which they are declared: a later one may need an earlier one. Raises ServiceFailed."""
        if spec.start_script:
            await self._run_script(spec.start_script)
        for service in spec.services:
            await self._start(service)

    async def status(self) -> list[ServiceStatus]:
        return list(await asyncio.gather(*(self._status(one) for one in self._running)))

    async def _run_script(self, script: str) -> None:
        done = await self._sandbox.run(script, timeout_s=_SCRIPT_TIMEOUT_S)
        if done.rc != 0:
            how = f"did not end within {_SCRIPT_TIMEOUT_S:g} s" if done.timed_out else f"ended with {done.rc}"
            output = (done.err or done.out)[-_KEPT_BYTES:].decode(errors="replace").strip()
            raise ServiceFailed(f"the start script {how}: {output or 'it printed nothing'}")

    async def _start(self, service: ServiceSpec) -> None:
        for path, data in service.files:
            await self._sandbox.write(path, data)
        process = await self._sandbox.exec(list(service.command), env=dict(service.env), user=service.user)
        one = _RunningService(service, process)
        self._running.append(one)
        end_s = time.monotonic() + service.start_timeout_s
        pause_s = _FIRST_PAUSE_S
        while not await self._healthy(one):
            if one.ended:
                done = await process.wait()
                raise ServiceFailed(
                    f"service {service.name} ended with {done.rc}: {one.output or 'it printed nothing'}"
                )
            if time.monotonic() > end_s:
                raise ServiceFailed(
                    f"service {service.name} does not serve after {service.start_timeout_s:g} s ({' '.join(service.health)}): {one.output}"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    async def _healthy(self, one: _RunningService) -> bool:
        if one.ended:
            return False
        if not one.service.health:
            return True
        done = await self._sandbox.run(list(one.service.health), env=dict(one.service.env), timeout_s=_HEALTH_TIMEOUT_S)
        return done.rc == 0

    async def _status(self, one: _RunningService) -> ServiceStatus:
        if await self._healthy(one):
            return ServiceStatus(one.service.name, True)
        return ServiceStatus(
            one.service.name, False, one.output or ("it has ended" if one.ended else "it does not answer")
        )
