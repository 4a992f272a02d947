"""A board (``config/boards/<name>.yaml``): what it is, how it is reached, what its memory holds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from pipelines.config.validation import Strict

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)]
PathText = Annotated[str, Field(min_length=1)]
"""A path; relative ones start at the repository, ``~`` is the user's home."""


HostKey = Annotated[str, Field(pattern=r"^(ssh-ed25519|ecdsa-sha2-nistp256|ssh-rsa) [A-Za-z0-9+/=]+$")]
"""As in the board's ``/etc/ssh/ssh_host_ed25519_key.pub``: "ssh-ed25519 AAAA…"."""


class Ssh(Strict):
    """How a board is reached. No password can be given: a key file, or the agent's keys."""

    host: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65_535)] = 22
    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]*$")]
    key_file: PathText | None = None  # without it, what the agent offers
    host_key: HostKey | None = None  # without it, the key must have been accepted once, explicitly


class Labgrid(Strict):
    """A place of a board farm, instead of a fixed host; acquiring and releasing it is labgrid's."""

    coordinator: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+:\d+$")]
    place: Name
    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]*$")]
    key_file: PathText | None = None
    host_key: HostKey | None = None


class Emulator(Strict):
    """The QEMU machine that is this board."""

    machine: Literal["vexpress-a9", "xilinx-zynq-a9"] = "vexpress-a9"
    idle_minutes: Annotated[int, Field(ge=1, le=1440)] = 30  # then it powers itself off
    disk_gib: Annotated[int, Field(ge=2, le=64)] = 4  # sparse; staging and several releases of a full-size model


class Image(Strict):
    """The system on the card of a real board."""

    versions: list[str]  # of PYNQ, as in /etc/environment or pynq.__version__
    xrt: PathText = "/usr"  # XILINX_XRT, without which pynq finds no device


class Board(Strict):
    """One board."""

    name: Name
    kind: Literal["emulated", "pynq-z1"]
    description: str = ""
    bitstream: Name  # a file in config/bitstreams/
    # What the circuits are on this board: the RTL compiled to a library, or the fabric loaded through pynq or
    # directly through the kernel's fpga_manager.
    pl: Literal["rtl-library", "pynq", "fpga-manager"]
    memory_mib: Annotated[int, Field(ge=64, le=4096)] = 512
    cma_mib: Annotated[int, Field(ge=16, le=480)]
    root: Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")] = "/var/lib/tritforge"  # on the board
    keep_releases: Annotated[int, Field(ge=1, le=100)] = 3
    lease_s: Annotated[int, Field(ge=10, le=3600)] = 60  # a holder that is silent for this long has lost the board
    groups: list[Name] = []
    ssh: Ssh | None = None
    labgrid: Labgrid | None = None
    emulator: Emulator | None = None
    image: Image | None = None
    # For tests: an emulated board answers behind a real board's name. It takes what the stand-in for Vivado made, which
    # no real board does, and nothing that it says counts as silicon.
    stand_in: bool = False

    @property
    def emulated(self) -> bool:
        return self.kind == "emulated"

    @property
    def takes_stand_ins(self) -> bool:
        """Whether releases with parts of a stand-in tool may be signed for it and deployed to it."""
        return self.emulated or self.stand_in

    def backend_shown(self, backend: str) -> str:
        """The runtime's backend as results name it: ``mmio`` there means silicon."""
        return f"{backend} of a stand-in" if self.stand_in else backend

    @field_validator("groups")
    @classmethod
    def _distinct(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise ValueError("a group is named twice")
        return value

    @model_validator(mode="after")
    def _one_way_in(self) -> Board:
        ways = [name for name in ("ssh", "labgrid", "emulator") if getattr(self, name) is not None]
        if self.emulated and not {"emulator", "labgrid"} & set(ways):
            raise ValueError("an emulated board needs 'emulator', or 'labgrid' when a farm has it")
        if not self.emulated and "emulator" in ways:
            raise ValueError(f"a board of kind {self.kind} has no 'emulator'")
        if self.emulated and self.pl != "rtl-library" and self.emulator and self.emulator.machine == "vexpress-a9":
            raise ValueError(f"pl is {self.pl}, but vexpress-a9 has no fabric to load; use rtl-library")
        if not self.emulated and self.pl == "rtl-library":
            raise ValueError("pl is rtl-library, but this board has a fabric; use pynq or fpga-manager")
        if self.stand_in and (self.ssh is None or self.ssh.host != "127.0.0.1"):
            raise ValueError("stand_in is for an emulated board on this machine: it needs ssh with host 127.0.0.1")
        if len(ways) != 1:
            raise ValueError(f"give exactly one of ssh, labgrid and emulator; found {', '.join(ways) or 'none'}")
        if self.cma_mib >= self.memory_mib:
            raise ValueError(f"cma_mib is {self.cma_mib}, but the board has {self.memory_mib} MiB of memory in all")
        return self
