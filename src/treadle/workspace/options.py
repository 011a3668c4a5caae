"""How a local workspace is set up. Used by local.py, and by everything that makes one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from treadle.core.contracts.workspace import NetworkAccess
from treadle.workspace import command_limits
from treadle.workspace.command_limits import FileDenials

SandboxMode = Literal["auto", "required", "read-only", "off"]


class WorkspaceOptions(msgspec.Struct, frozen=True):
    """How a local workspace is set up.

    extra_roots      folders beside the root that may be read and written
    readable         folders that may be read only
    sandbox_readable more folders of the machine that sandboxed commands see
    sandbox          auto: if it can be built · required: or run nothing · off · read-only:
                     required, and commands change nothing in the folders, reach no network and see
                     no files that may contain secrets
    network          whether sandboxed commands can use the network, or the hosts they can reach
    protected        further paths in the root that stay read-only
    denials          deny rules about files, which hold for sandboxed commands too
    env_passthrough  further environment variables that commands get
    env              variables that commands get, with their values; never a secret
    state_dir        the agent's own folder for what must survive a crash
    outputs_dir      where long outputs are kept; by default only until closing
    max_processes    how many processes a command may have at once
    max_memory       bytes that a command may use; by default three quarters of the machine's
    max_disk         bytes that a command may take of the disk; by default half of what is free
    grace            seconds between TERM and KILL for a command that timed out
    secrets          values that are redacted from the output of commands
    """

    extra_roots: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    sandbox_readable: tuple[Path, ...] = ()
    sandbox: SandboxMode = "auto"
    network: NetworkAccess = False
    protected: tuple[str, ...] = ()
    denials: FileDenials = FileDenials()
    env_passthrough: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    state_dir: Path | None = None
    outputs_dir: Path | None = None
    max_processes: int = command_limits.DEFAULT_MAX_PROCESSES
    max_memory: int | None = None
    max_disk: int = 0
    grace: float = 2.0
    secrets: tuple[str, ...] = ()

    @property
    def requires_sandbox(self) -> bool:
        return self.sandbox in ("required", "read-only")


class Confinement(msgspec.Struct, frozen=True):
    """What a sandboxed command may do: write below `writable`, use the network or not. With
    `read_only` it does neither, and sees no files there that may contain secrets.

    `readable` is mounted read-only even in hidden folders such as home. `protected` are further
    paths of the roots that stay read-only. `copies_dir` is private, for copies that are mounted;
    `state_dir` for what outlives an agent: what was moved away because a command may not make it,
    what the next one has to know if this one is killed, and copies of files of the system. Files
    that are kept in memory share `max_memory` bytes, 0 for no limit.
    """

    writable: tuple[Path, ...]
    temp_dir: Path
    copies_dir: Path
    state_dir: Path
    network: NetworkAccess = False
    protected: tuple[str, ...] = ()
    readable: tuple[Path, ...] = ()
    denials: FileDenials = FileDenials()
    max_memory: int = 0
    read_only: bool = False
