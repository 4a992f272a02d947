"""Settings of processing_system7 that the stand-in judges: names in config_names.json, values and sense here."""

from __future__ import annotations

import re

from .tcl import TclError

DEFAULTS = {
    "PCW_CRYSTAL_PERIPHERAL_FREQMHZ": "33.333333",
    "PCW_DDR_RAM_HIGHADDR": "0x1FFFFFFF",
    "PCW_FPGA0_PERIPHERAL_FREQMHZ": "50",
    "PCW_EN_CLK0_PORT": "0",
    "PCW_EN_RST0_PORT": "0",
    "PCW_UIPARAM_DDR_PARTNO": "MT41J256M8 HX-15E",
    "PCW_USE_DEFAULT_ACP_USER_VAL": "0",
    "PCW_USE_M_AXI_GP0": "0",
    "PCW_USE_S_AXI_ACP": "0",
}

# Capacity in bytes and width in bits of one chip.
# ASSUMPTION A07: these names of DDR chips, with exactly this spelling, are in PS7's list.
DDR_CHIPS = {
    "MT41J64M16 JT-125G": (128 << 20, 16),
    "MT41J128M8 JP-125": (128 << 20, 8),
    "MT41J128M16 HA-125": (256 << 20, 16),
    "MT41J256M8 HX-15E": (256 << 20, 8),
    "MT41J256M16 RE-125": (512 << 20, 16),
    "MT41K128M16 JT-125": (256 << 20, 16),
}

VOLTAGES = ("LVCMOS 1.8V", "LVCMOS 2.5V", "LVCMOS 3.3V", "HSTL 1.8V")
IO_PLL_MHZ = 1000

_ENUMERATIONS: list[tuple[str, tuple[str, ...]]] = [
    (r"PCW_MIO_\d+_IOTYPE", VOLTAGES),
    (r"PCW_MIO_\d+_PULLUP", ("enabled", "disabled")),
    (r"PCW_MIO_\d+_SLEW", ("slow", "fast")),
    (r"PCW_PRESET_BANK[01]_VOLTAGE", VOLTAGES),
    (r"PCW_S_AXI_HP[0-3]_DATA_WIDTH", ("32", "64")),
    (r"PCW_(ENET|USB|I2C)_RESET_POLARITY", ("Active Low", "Active High")),
    (r"PCW_(ENET|USB|I2C)_RESET_SELECT", ("Share reset pin", "Separate reset pins")),
    (r"PCW_ENET[01]_PERIPHERAL_FREQMHZ", ("10 Mbps", "100 Mbps", "1000 Mbps", "External")),
    (r"PCW_UIPARAM_DDR_BUS_WIDTH", ("16 Bit", "32 Bit")),
    (r"PCW_UIPARAM_DDR_MEMORY_TYPE", ("DDR 2", "DDR 3", "DDR 3 (Low Voltage)", "LPDDR 2")),
    (r"PCW_UIPARAM_DDR_ECC", ("Disabled", "Enabled")),
    (r"PCW_UIPARAM_DDR_HIGH_TEMP", ("Normal (0-85)", "High (95 Max)")),
    (r"PCW_UIPARAM_DDR_BL", ("4", "8", "16")),
    (r"PCW_UIPARAM_DDR_PARTNO", (*DDR_CHIPS, "Custom")),
    (r"PCW_CPU_CPU_6X4X_MAX_RANGE", ("667", "733", "767", "800", "867")),
    (r"PCW_UART[01]_BAUD_RATE", ("9600", "38400", "57600", "115200", "230400", "460800", "921600")),
    (r"PCW_QSPI_QSPI_IO", ("MIO 1 .. 6",)),
    (r"PCW_QSPI_GRP_FBCLK_IO", ("MIO 8",)),
    (r"PCW_QSPI_GRP_SINGLE_SS_IO", ("MIO 1 .. 6",)),
    (r"PCW_ENET0_ENET0_IO", ("MIO 16 .. 27", "EMIO")),
    (r"PCW_ENET0_GRP_MDIO_IO", ("MIO 52 .. 53", "EMIO")),
    (r"PCW_SD0_SD0_IO", ("MIO 16 .. 21", "MIO 28 .. 33", "MIO 40 .. 45", "EMIO")),
    (r"PCW_UART0_UART0_IO", tuple(f"MIO {i} .. {i + 1}" for i in range(10, 51, 4)) + ("EMIO",)),
    (r"PCW_USB0_USB0_IO", ("MIO 28 .. 39",)),
    (
        r"PCW_(USE_.*|EN_.*|.*_ENABLE|GPIO_MIO_GPIO_ENABLE|IRQ_F2P_INTR|UIPARAM_DDR_(TRAIN_.*|CLOCK_STOP_EN|ADV_ENABLE"
        r"|USE_INTERNAL_VREF|ENABLE))",
        ("0", "1"),
    ),
]

# Lowest and highest value in MHz.
_FREQUENCIES = {
    "PCW_APU_PERIPHERAL_FREQMHZ": (50.0, 667.0),
    "PCW_CRYSTAL_PERIPHERAL_FREQMHZ": (30.0, 60.0),
    "PCW_DCI_PERIPHERAL_FREQMHZ": (0.1, 177.0),
    "PCW_FPGA0_PERIPHERAL_FREQMHZ": (0.1, 250.0),
    "PCW_PCAP_PERIPHERAL_FREQMHZ": (10.0, 200.0),
    "PCW_QSPI_PERIPHERAL_FREQMHZ": (10.0, 200.0),
    "PCW_SDIO_PERIPHERAL_FREQMHZ": (10.0, 125.0),
    "PCW_UART_PERIPHERAL_FREQMHZ": (10.0, 100.0),
    "PCW_UIPARAM_DDR_FREQ_MHZ": (200.0, 534.0),
}


def check_value(cell: str, name: str, value: str) -> None:
    """Refuses a value PS7 would not take. Judges the value alone; ``check_whole`` looks at all of them together."""

    def refuse(what: str) -> TclError:
        return TclError(
            f"[IP_Flow 19-3461] Value '{value}' is out of the range for parameter '{name}' for BD Cell '{cell}'. {what}"
        )

    for pattern, allowed in _ENUMERATIONS:
        if re.fullmatch(pattern, name):
            if value not in allowed:
                raise refuse("Valid values are - " + ", ".join(allowed))
            return
    if name in _FREQUENCIES:
        low, high = _FREQUENCIES[name]
        if not low <= _number(value, refuse) <= high:
            raise refuse(f"Valid values are - {low:g} to {high:g}")
        return
    if re.fullmatch(
        r"PCW_.*_(LENGTH_MM|PACKAGE_LENGTH|PROPOGATION_DELAY|BOARD_DELAY\d|DQS_TO_CLK_DELAY_\d|DDR_AL)", name
    ):
        _number(value, refuse)
        return
    if re.fullmatch(r"PCW_.*_(BASEADDR|HIGHADDR)", name):
        if not re.fullmatch(r"0x[0-9A-Fa-f]{8}", value):
            raise refuse("An address is written as 0x and eight digits")
        return
    if re.fullmatch(r"PCW_.*_IO", name):
        if not re.fullmatch(r"MIO \d+( \.\. \d+)?|EMIO", value):
            raise refuse("Valid values are - MIO n, MIO n .. m, EMIO")
        return
    raise TclError(f"[standin] CONFIG.{name} of processing_system7 is real, but not described in ps7.py: add it there")


def warnings_of(config: dict[str, str]) -> list[str]:
    """What PS7 says, and builds all the same.

    ASSUMPTION A14: these are the only critical warnings of a good build. PS7 was seen to say them of the PYNQ-Z1.
    """
    negative = [
        (name, config[name])
        for name in (f"PCW_UIPARAM_DDR_DQS_TO_CLK_DELAY_{i}" for i in range(4))
        if config.get(name, "0").startswith("-")
    ]
    return [
        f"CRITICAL WARNING: [PSU-{i}]  Parameter : {name} has negative value {value} . PS DDR interfaces might fail "
        "when entering negative DQS skew values. "
        for i, (name, value) in enumerate(negative, 1)
    ]


def _number(value: str, refuse: object) -> float:
    try:
        return float(value)
    except ValueError:
        raise refuse("A number is needed") from None  # type: ignore[operator]


def exact_fclk(mhz: float) -> bool:
    """Whether two six-bit dividers make this clock from the 1000 MHz IO PLL."""
    return any(abs(IO_PLL_MHZ / (a * b) - mhz) < 1e-6 * mhz for a in range(1, 64) for b in range(1, a + 1))


def check_whole(config: dict[str, str]) -> list[str]:
    """Contradictions between settings, as messages."""
    wrong: list[str] = []
    banks = {0: config.get("PCW_PRESET_BANK0_VOLTAGE"), 1: config.get("PCW_PRESET_BANK1_VOLTAGE")}
    pins = {int(m[1]): v for k, v in config.items() if (m := re.fullmatch(r"PCW_MIO_(\d+)_IOTYPE", k))}
    for pin, kind in sorted(pins.items()):
        bank = banks[0 if pin < 16 else 1]
        if kind != bank:
            wrong.append(f"MIO {pin} is {kind}, but its bank is at {bank}")
    missing = sorted(set(range(54)) - set(pins))
    if missing:
        wrong.append(f"no IOTYPE for MIO {', '.join(map(str, missing))}")
    no_slew = sorted(set(range(54)) - {int(m[1]) for k in config if (m := re.fullmatch(r"PCW_MIO_(\d+)_SLEW", k))})
    if no_slew:
        wrong.append(f"no SLEW for MIO {', '.join(map(str, no_slew))}")
    used: dict[int, str] = {}
    # The groups of QSPI share the pins of QSPI itself, so they are not counted again.
    for name, value in sorted(config.items()):
        match = re.fullmatch(r"MIO (\d+)(?: \.\. (\d+))?", value)
        if not match or name in ("PCW_QSPI_GRP_SINGLE_SS_IO",):
            continue
        owner = name.removeprefix("PCW_")
        for pin in range(int(match[1]), int(match[2] or match[1]) + 1):
            if pin in used:
                wrong.append(f"MIO {pin} is claimed by {used[pin]} and {owner}")
            used[pin] = owner
    for peripheral in ("ENET0", "QSPI", "SD0", "UART0", "USB0"):
        if config.get(f"PCW_{peripheral}_PERIPHERAL_ENABLE") != "1":
            wrong.append(f"{peripheral}, which the board has, is not enabled")
        elif f"PCW_{peripheral}_{peripheral}_IO" not in config:
            wrong.append(f"{peripheral} is enabled but has no pins")
    mhz = float(config.get("PCW_FPGA0_PERIPHERAL_FREQMHZ", DEFAULTS["PCW_FPGA0_PERIPHERAL_FREQMHZ"]))
    if not exact_fclk(mhz):
        wrong.append(f"FCLK0 cannot be {mhz:g} MHz exactly from the {IO_PLL_MHZ} MHz IO PLL")
    if config.get("PCW_CRYSTAL_PERIPHERAL_FREQMHZ") != "50":
        wrong.append("the crystal of the PYNQ-Z1 has 50 MHz")
    if config.get("PCW_UIPARAM_DDR_ENABLE") != "1":
        wrong.append("the DDR controller is not enabled")
    chip = DDR_CHIPS.get(config.get("PCW_UIPARAM_DDR_PARTNO", ""))
    if chip is None:
        wrong.append("no DDR part is chosen")
    else:
        bus = int(config.get("PCW_UIPARAM_DDR_BUS_WIDTH", "32 Bit").split()[0])
        capacity = chip[0] * (bus // chip[1])
        high = int(config.get("PCW_DDR_RAM_HIGHADDR", "0"), 16)
        if capacity != high + 1:
            wrong.append(f"the DDR chips hold 0x{capacity:X} bytes, but PCW_DDR_RAM_HIGHADDR is 0x{high:08X}")
    # MIO 2 to 8 are the boot straps, whose levels the board sets; PS7 gives them no pull-up.
    pulled = {int(m[1]) for k in config if (m := re.fullmatch(r"PCW_MIO_(\d+)_PULLUP", k))}
    if pulled != set(range(54)) - set(range(2, 9)):
        wrong.append("a PULLUP must be stated for every MIO but the boot straps 2 to 8")
    for name, value in sorted(config.items()):
        match = re.fullmatch(r"(PCW_\w+_(?:GRP_\w+|RESET))_(IO|ENABLE)", name)
        if match and match[2] == "IO" and config.get(f"{match[1]}_ENABLE") != "1":
            wrong.append(f"{name} is given, but {match[1]}_ENABLE is not 1")
        optional = re.fullmatch(r"PCW_(ENET|USB|I2C)_RESET", match[1]) if match else None
        if match and match[2] == "ENABLE" and value == "1" and not optional and f"{match[1]}_IO" not in config:
            wrong.append(f"{name} is 1, but {match[1]}_IO is not given")
    for i in range(4):
        for wire in ("CLOCK", "DQ", "DQS"):
            for fact in ("LENGTH_MM", "PACKAGE_LENGTH", "PROPOGATION_DELAY"):
                if f"PCW_UIPARAM_DDR_{wire}_{i}_{fact}" not in config:
                    wrong.append(
                        f"PCW_UIPARAM_DDR_{wire}_{i}_{fact} is not given: the traces of the board are its facts"
                    )
        for fact in (f"BOARD_DELAY{i}", f"DQS_TO_CLK_DELAY_{i}"):
            if f"PCW_UIPARAM_DDR_{fact}" not in config:
                wrong.append(f"PCW_UIPARAM_DDR_{fact} is not given: the traces of the board are its facts")
    # Settings without which PS7 falls back to defaults that are not this board.
    for name in (
        "PCW_APU_PERIPHERAL_FREQMHZ", "PCW_DDR_RAM_HIGHADDR", "PCW_PRESET_BANK0_VOLTAGE", "PCW_PRESET_BANK1_VOLTAGE",
        "PCW_UIPARAM_DDR_BUS_WIDTH", "PCW_UIPARAM_DDR_FREQ_MHZ", "PCW_UIPARAM_DDR_MEMORY_TYPE",
        "PCW_UIPARAM_DDR_PARTNO", "PCW_USE_FABRIC_INTERRUPT", "PCW_IRQ_F2P_INTR", "PCW_QSPI_GRP_SINGLE_SS_ENABLE",
    ):  # fmt: skip
        if name not in config:
            wrong.append(f"{name} is left at a default that may not be this board's")
    return wrong
