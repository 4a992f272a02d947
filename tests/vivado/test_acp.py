"""The Verilog of the coherent port, simulated: packets are filled to cache lines, AxCACHE and AxUSER are driven."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

VIVADO = Path(__file__).parents[2] / "hw" / "vivado"

BENCH = """
`timescale 1ns/1ps
module bench;
  reg aclk = 0, aresetn = 0;
  always #4 aclk = ~aclk;
  reg [73:0] in_words [0:4095];
  integer count, sent = 0, seed = SEED, cycles = 0, input_percent = IN_PERCENT, output_percent = OUT_PERCENT;
  reg offered = 0, ready = 0, stalled = 0;
  reg [72:0] held;
  wire [63:0] tdata; wire [7:0] tkeep; wire tvalid, tlast, accepted;
  // A word stays offered until it is taken, as AXI4-Stream asks for.
  wire [73:0] word = in_words[sent];
  axis_pad32 dut (
    .aclk(aclk), .aresetn(aresetn),
    .s_axis_tdata(word[63:0]), .s_axis_tkeep(word[71:64]), .s_axis_tlast(word[72]),
    .s_axis_tvalid(offered), .s_axis_tready(accepted),
    .m_axis_tdata(tdata), .m_axis_tkeep(tkeep), .m_axis_tvalid(tvalid), .m_axis_tready(ready), .m_axis_tlast(tlast));
  initial begin
    $readmemh("words.hex", in_words);
    count = COUNT;
    repeat (4) @(posedge aclk);
    aresetn <= 1;
  end
  always @(posedge aclk) if (aresetn) begin
    cycles <= cycles + 1;
    if (offered && accepted) begin
      sent = sent + 1;
      offered <= (sent < count) && ($urandom(seed) % 100 < input_percent);
    end else if (!offered) offered <= (sent < count) && ($urandom(seed) % 100 < input_percent);
    ready <= ($urandom(seed) % 100 < output_percent);
    if (tvalid && ready) $display("OUT %h %h %b", tdata, tkeep, tlast);
    if (stalled && (!tvalid || {tdata, tkeep, tlast} !== held)) $display("UNSTABLE");
    stalled <= tvalid && !ready;
    held <= {tdata, tkeep, tlast};
    if (cycles > 60000 || (sent == count && !tvalid)) $finish;
  end
endmodule
"""


def simulate(
    folder: Path, packets: list[list[int]], *, seed: int, in_percent: int, out_percent: int
) -> list[tuple[int, int, int]]:
    """Sends packets of int32 values, two a word; returns the words (data, keep, last) that came out."""
    words = []
    for packet in packets:
        for i in range(0, len(packet), 2):
            pair = packet[i : i + 2]
            # What is not kept is not data: filled with ones, to see that it is not passed on.
            data = pair[0] | (pair[1] if len(pair) == 2 else 0xFFFF_FFFF) << 32
            keep = 0xFF if len(pair) == 2 else 0x0F
            words.append((int(i + 2 >= len(packet)) << 72) | keep << 64 | data)
    (folder / "words.hex").write_text("\n".join(f"{word:019x}" for word in words) + "\n")
    text = BENCH.replace("SEED", str(seed)).replace("COUNT", str(len(words)))
    text = text.replace("IN_PERCENT", str(in_percent)).replace("OUT_PERCENT", str(out_percent))
    (folder / "bench.v").write_text(text)
    subprocess.run(
        ["iverilog", "-g2005-sv", "-o", "bench", "bench.v", VIVADO / "axis_pad32.v"], cwd=folder, check=True, timeout=60
    )
    done = subprocess.run(["vvp", "bench"], cwd=folder, check=True, capture_output=True, text=True, timeout=60)
    assert "UNSTABLE" not in done.stdout
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("OUT")]
    return [(int(data, 16), int(keep, 16), int(last, 2)) for data, keep, last in lines]


@pytest.mark.parametrize(("in_percent", "out_percent"), [(100, 100), (100, 40), (40, 100), (60, 60)])
def test_packets_become_whole_cache_lines(in_percent: int, out_percent: int, tmp_path: Path) -> None:
    source = random.Random(in_percent * 1000 + out_percent)
    lengths = [*range(1, 18), 97, 98, *(source.randint(1, 200) for _ in range(6))]
    packets = [[source.getrandbits(32) for _ in range(n)] for n in lengths]
    words = simulate(tmp_path, packets, seed=source.randint(1, 10_000), in_percent=in_percent, out_percent=out_percent)
    found: list[list[int]] = [[]]
    for data, keep, last in words:
        assert keep == 0xFF
        found[-1] += [data & 0xFFFF_FFFF, data >> 32]
        if last:
            found.append([])
    assert found.pop() == [] and len(found) == len(packets)
    for packet, out in zip(packets, found, strict=True):
        assert len(out) % 8 == 0 and len(out) - len(packet) < 8
        assert out[: len(packet)] == packet and not any(out[len(packet) :])


def test_the_shim_drives_what_the_coherent_port_needs(tmp_path: Path) -> None:
    (tmp_path / "bench.v").write_text(
        "module bench; reg [3:0] cache; wire [3:0] aw, ar; wire [4:0] awu, aru; reg [31:0] a; wire [31:0] b;\n"
        "reg [7:0] strb; wire [7:0] strb_out;\n"
        "acp_port dut(.s_axi_awcache(cache), .s_axi_arcache(cache), .m_axi_awcache(aw), .m_axi_arcache(ar),"
        ".m_axi_awuser(awu), .m_axi_aruser(aru), .s_axi_awaddr(a), .m_axi_awaddr(b), .s_axi_wstrb(strb),"
        ".m_axi_wstrb(strb_out));\n"
        "initial begin cache = 4'b0011; a = 32'h12345678; strb = 8'h5A; #1 $display(\"%b %b %b %b %h %h\", aw, ar, awu,"
        " aru, b, strb_out); end endmodule\n"
    )
    subprocess.run(["iverilog", "-o", "bench", "bench.v", VIVADO / "acp_port.v"], cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run(["vvp", "bench"], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["1111", "1111", "11111", "11111", "12345678", "5a"]


@pytest.mark.parametrize("name", ["acp_port", "axis_pad32"])
def test_lint(name: str) -> None:
    subprocess.run(["verilator", "--lint-only", "-Wall", VIVADO / f"{name}.v"], check=True, timeout=60)
