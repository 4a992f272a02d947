"""The bitstream YAML (``config/bitstreams/<name>.yaml``) as a model, and what follows from it by arithmetic.

The configuration reader gives the parsed YAML to ``BitstreamDesign.model_validate``; pydantic's errors carry the path
of the field, to which the reader adds file, line and column. ``key()`` is what a stage has to hash: every value that
can change a bit of the result, and none that cannot (where a sweep runs, how long it waits for a licence).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pipelines.golden import formats

HpPort = Literal["HP0", "HP1", "HP2", "HP3"]
MemoryPort = Literal["hp", "acp"]
Engine = Literal["matvec0", "matvec1", "attention0", "attention1"]

STREAM_OF: dict[str, str] = {"matvec0": "mv0", "matvec1": "mv1", "attention0": "at0", "attention1": "at1"}
"""Suffix of the shell's ``s_axis_*`` and ``m_axis_*`` ports of an engine."""

IO_PLL_MHZ = 1000
"""What the fabric clocks are divided from on this board (50 MHz crystal, feedback 20)."""

MAX_FCLK_DIVISOR = 63
"""Both of the two dividers in a row are six bits wide."""

LENGTH_WIDTHS = range(8, 27)
"""Allowed widths in bits of the AXI DMA's length register."""

AXI_LITE_SEGMENT_BYTES = 0x10000

# Directives of the steps for 7-series parts, from UG835 (synth_design, opt_design, place_design, phys_opt_design,
# route_design) as far as they exist in every version from 2022.1 on.
SynthesisDirective = Literal[
    "Default", "RuntimeOptimized", "AreaOptimized_high", "AreaOptimized_medium", "AlternateRoutability",
    "AreaMapLargeShiftRegToBRAM", "AreaMultThreshold_DSP", "FewerCarryChains", "PerformanceOptimized",
]  # fmt: skip
OptDirective = Literal[
    "Default", "Explore", "ExploreArea", "ExploreSequentialArea", "ExploreWithRemap", "AddRemap", "NoBramPowerOpt",
    "RuntimeOptimized",
]  # fmt: skip
PlaceDirective = Literal[
    "Default", "Explore", "WLDrivenBlockPlacement", "EarlyBlockPlacement", "ExtraNetDelay_high", "ExtraNetDelay_low",
    "AltSpreadLogic_high", "AltSpreadLogic_medium", "AltSpreadLogic_low", "ExtraPostPlacementOpt", "ExtraTimingOpt",
    "RuntimeOptimized", "Quick",
]  # fmt: skip
PhysOptDirective = Literal[
    "off", "Default", "Explore", "ExploreWithHoldFix", "ExploreWithAggressiveHoldFix", "AggressiveExplore",
    "AlternateReplication", "AggressiveFanoutOpt", "AddRetime", "AlternateFlowWithRetiming", "RuntimeOptimized",
]  # fmt: skip
RouteDirective = Literal[
    "Default", "Explore", "AggressiveExplore", "NoTimingRelaxation", "MoreGlobalIterations", "HigherDelayCost",
    "AlternateCLBRouting", "RuntimeOptimized", "Quick",
]  # fmt: skip

Version = Annotated[str, Field(pattern=r"^20\d\d\.[1-4](\.\d)?$")]
TclName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Shell(_Strict):
    """The Verilog module that is our whole circuit, and its parameters that differ from their defaults."""

    module: TclName = "tritforge_shell"
    parameters: dict[TclName, int] = Field(default_factory=dict)

    @field_validator("parameters")
    @classmethod
    def _content_id_is_not_ours(cls, value: dict[str, int]) -> dict[str, int]:
        if "CONTENT_ID" in value:
            raise ValueError("CONTENT_ID is set by the build from the contents of its inputs, not in the YAML")
        return value


class Segment(_Strict):
    """A range of addresses on the general-purpose port."""

    base: Annotated[int, Field(ge=0x4000_0000, le=0x7FFF_FFFF)]
    bytes: Annotated[int, Field(ge=0x1000, le=0x0100_0000)] = AXI_LITE_SEGMENT_BYTES

    @model_validator(mode="after")
    def _aligned(self) -> Segment:
        if self.bytes & (self.bytes - 1):
            raise ValueError(f"bytes is 0x{self.bytes:X}; a segment is a power of two")
        if self.base % self.bytes:
            raise ValueError(f"base 0x{self.base:08X} is not a multiple of bytes 0x{self.bytes:X}")
        return self


class EngineDma(Segment):
    """One AXI DMA: its registers, the HP port it reads through, scatter-gather or simple."""

    hp_port: HpPort
    scatter_gather: bool = True


class Dma(_Strict):
    """The four DMAs. ``max_transfer_bytes`` decides the width of the length register."""

    max_transfer_bytes: Annotated[int, Field(ge=64, le=(1 << 26) - 8)]
    burst_beats: Literal[2, 4, 8, 16] = 16
    results_port: MemoryPort = "hp"
    descriptors_port: MemoryPort = "hp"
    interrupts: bool = False
    engines: dict[Engine, EngineDma]

    @field_validator("max_transfer_bytes")
    @classmethod
    def _whole_beats(cls, value: int) -> int:
        if value % formats.WORD_BYTES:
            raise ValueError(f"{value} is not a whole number of {formats.WORD_BYTES}-byte beats")
        return value

    @field_validator("engines")
    @classmethod
    def _all_engines(cls, value: dict[str, EngineDma]) -> dict[str, EngineDma]:
        missing = [name for name in formats.ENGINES if name not in value]
        if missing:
            raise ValueError(f"no DMA for {', '.join(missing)}")
        for name, dma in value.items():
            if name.startswith("attention") and not dma.scatter_gather:
                raise ValueError(f"{name} needs scatter_gather: a head's header, K and V lie in different places")
        for port in get_args(HpPort):
            users = [name for name, dma in value.items() if dma.hp_port == port]
            if len(users) > 1:
                raise ValueError(f"{' and '.join(users)} are both on {port}; an HP port serves one DMA")
        return {name: value[name] for name in formats.ENGINES if name in value}

    @property
    def length_width(self) -> int:
        """Bits of the length register: 23 for 8 MiB - 8."""
        return max(min(LENGTH_WIDTHS), self.max_transfer_bytes.bit_length())


class Ddr(_Strict):
    """The memory of the board, as the PS7 has to know it."""

    base: int = 0
    bytes: int = 0x2000_0000
    part: str
    bus_bits: Literal[16, 32]
    clock_mhz: int


class VivadoPolicy(_Strict):
    """Which Vivado may build this, and how long things may take."""

    release: Version
    development_from: Version
    development_to: Version
    threads: Annotated[int, Field(ge=1, le=32)] = 4
    jobs: Annotated[int, Field(ge=1, le=32)] = 2
    run_minutes: Annotated[int, Field(ge=1, le=1440)] = 180
    licence_wait_s: Annotated[float, Field(ge=0, le=86_400)] = 600

    @model_validator(mode="after")
    def _ordered(self) -> VivadoPolicy:
        if not version_tuple(self.development_from) <= version_tuple(self.release):
            raise ValueError(f"release {self.release} is older than development_from {self.development_from}")
        if not version_tuple(self.release) <= version_tuple(self.development_to):
            raise ValueError(f"release {self.release} is newer than development_to {self.development_to}")
        return self

    def allows(self, version: str, *, release: bool) -> bool:
        """Whether this version may build: exactly ``release`` for a release, else anything in the range."""
        if release:
            return version == self.release
        first, last = version_tuple(self.development_from), version_tuple(self.development_to)
        # A patch (2024.2.1) belongs to its minor version.
        return first <= version_tuple(version) and version_tuple(version)[:2] <= last[:2]


class Strategy(_Strict):
    """Directive of each step; ``off`` leaves an optional step out. There are no placer seeds in Vivado."""

    synthesis: SynthesisDirective = "Default"
    opt: OptDirective = "Default"
    place: PlaceDirective = "Default"
    phys_opt: PhysOptDirective = "Default"
    route: RouteDirective = "Default"
    post_route_phys_opt: PhysOptDirective = "off"


class Candidate(_Strict):
    """What a sweep candidate changes of the strategy."""

    synthesis: SynthesisDirective | None = None
    opt: OptDirective | None = None
    place: PlaceDirective | None = None
    phys_opt: PhysOptDirective | None = None
    route: RouteDirective | None = None
    post_route_phys_opt: PhysOptDirective | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Candidate:
        if not self.model_dump(exclude_none=True):
            raise ValueError("a candidate has to change at least one step")
        return self


class Cluster(_Strict):
    """Where the tasks of a sweep run: Dask, on this machine or elsewhere."""

    kind: Literal["local", "address", "slurm", "lsf"] = "local"
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    address: str = ""  # of a running scheduler: tcp://host:8786
    queue: str = ""
    cores: Annotated[int, Field(ge=1, le=128)] = 4
    memory_gib: Annotated[int, Field(ge=1, le=1024)] = 8
    walltime: Annotated[str, Field(pattern=r"^\d+:\d\d(:\d\d)?$")] = "4:00"

    @model_validator(mode="after")
    def _address_when_needed(self) -> Cluster:
        if self.kind == "address" and not self.address:
            raise ValueError("kind is address, so address must name a scheduler, such as tcp://host:8786")
        return self


class Sweep(_Strict):
    """Strategies to try when timing is missed."""

    candidates: dict[TclName, Candidate] = Field(default_factory=dict)
    cluster: Cluster = Cluster()


class Limits(_Strict):
    """Most of each resource on the implemented design, and least slack in ns."""

    lut: Annotated[int, Field(gt=0, le=53_200)]
    ff: Annotated[int, Field(gt=0, le=106_400)]
    bram36: Annotated[float, Field(gt=0, le=140)]  # halves: a RAMB18 is half a tile
    dsp: Annotated[int, Field(gt=0, le=220)]
    setup_slack_ns: Annotated[float, Field(ge=0)] = 0.0
    hold_slack_ns: Annotated[float, Field(ge=0)] = 0.0
    pulse_width_slack_ns: Annotated[float, Field(ge=0)] = 0.0


class BitstreamDesign(_Strict):
    """Everything that decides a bitstream, except the RTL."""

    name: TclName
    part: Literal["xc7z020clg400-1"]
    clock_mhz: Annotated[float, Field(gt=0, le=250)]
    shell: Shell = Shell()
    control: Segment
    dma: Dma
    ddr: Ddr
    vivado: VivadoPolicy
    strategy: Strategy = Strategy()
    limits: Limits
    sweep: Sweep = Sweep()

    @field_validator("clock_mhz")
    @classmethod
    def _exact_clock(cls, value: float) -> float:
        if fclk_divisors(value) is None:
            lower, upper = neighbours_of_clock(value)
            raise ValueError(
                f"{value:g} MHz cannot be divided from {IO_PLL_MHZ} MHz; the nearest are {lower:g} and {upper:g}"
            )
        return value

    @model_validator(mode="after")
    def _addresses(self) -> BitstreamDesign:
        segments: dict[str, Segment] = {"control": self.control}
        segments.update({str(name): dma for name, dma in self.dma.engines.items()})
        names = list(segments)
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                a, b = segments[one], segments[other]
                if a.base < b.base + b.bytes and b.base < a.base + a.bytes:
                    raise ValueError(f"the addresses of {one} and {other} overlap (0x{a.base:08X}, 0x{b.base:08X})")
        # The runtime has these addresses compiled in, from the same formats.
        expected = {"control": formats.CONTROL_BASE} | {
            name: formats.DMA_BASE + i * formats.DMA_STRIDE for i, name in enumerate(formats.ENGINES)
        }
        for name, base in expected.items():
            if segments[name].base != base:
                raise ValueError(f"{name} is at 0x{segments[name].base:08X}; the runtime expects it at 0x{base:08X}")
        return self

    # ------------------------------------------------------------------------------------------------ derived

    def masters(self, engine: str) -> list[str]:
        """The memory masters of a DMA, as the core names them."""
        masters = ["M_AXI_MM2S", "M_AXI_S2MM"]
        return [*masters, "M_AXI_SG"] if self.dma.engines[engine].scatter_gather else masters  # type: ignore[index]

    def acp_masters(self) -> list[str]:
        """``cell/interface`` of each master on the coherent port, in the order of the engines."""
        kinds = (["M_AXI_S2MM"] if self.dma.results_port == "acp" else []) + (
            ["M_AXI_SG"] if self.dma.descriptors_port == "acp" else []
        )
        return [f"dma_{engine}/{kind}" for engine in formats.ENGINES for kind in kinds if kind in self.masters(engine)]

    def strategy_of(self, candidate: str | None) -> Strategy:
        """The strategy, or what a sweep candidate makes of it."""
        if candidate is None:
            return self.strategy
        return self.strategy.model_copy(update=self.sweep.candidates[candidate].model_dump(exclude_none=True))

    def with_strategy(self, candidate: str | None) -> BitstreamDesign:
        return self.model_copy(update={"strategy": self.strategy_of(candidate)})

    def key(self) -> dict[str, Any]:
        """Values that decide the bits, for the stage's key; JSON types only."""
        value = self.model_dump(mode="json", exclude={"sweep": {"cluster"}})
        for name in ("licence_wait_s", "run_minutes", "jobs"):
            value["vivado"].pop(name)
        return value


def version_tuple(version: str) -> tuple[int, ...]:
    """``2024.1`` -> ``(2024, 1)``, for comparing."""
    return tuple(int(part) for part in version.split("."))


def fclk_divisors(clock_mhz: float) -> tuple[int, int] | None:
    """The two dividers of the PS7 that make exactly this clock from the IO PLL, or None. 125 -> (8, 1)."""
    for first in range(1, MAX_FCLK_DIVISOR + 1):
        for second in range(1, first + 1):
            if abs(IO_PLL_MHZ / (first * second) - clock_mhz) < 1e-6 * clock_mhz:
                return first, second
    return None


def neighbours_of_clock(clock_mhz: float) -> tuple[float, float]:
    """The nearest clocks below and above that the dividers can make, in MHz."""
    products = {a * b for a in range(1, MAX_FCLK_DIVISOR + 1) for b in range(1, MAX_FCLK_DIVISOR + 1)}
    clocks = sorted(IO_PLL_MHZ / product for product in products)
    lower = max((c for c in clocks if c < clock_mhz), default=clocks[0])
    upper = min((c for c in clocks if c > clock_mhz), default=clocks[-1])
    return lower, upper
