// The design as Vivado's block diagram sees it: plain Verilog around tritforge_top, since a module reference may not be
// SystemVerilog. Nothing but wiring and the attributes from which Vivado infers the interfaces.
//
// One clock. The register map of s_axi and the streams are in docs/formats.md.

`default_nettype none

module tritforge_shell #(
  // First 32 bits of the content id of the build; software reads it back to know what is loaded.
  parameter [31:0] CONTENT_ID = 32'h0000_0000,
  // Entries of an attention head; a multiple of 8.
  parameter integer HEAD_DIM = 96,
  // Largest number of positions of a head: 1 to 2048. Above 512 the probabilities have 13 bits, else 15.
  parameter integer MAX_POSITIONS = 512
) (
  (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 aclk CLK" *)
  (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF s_axi:s_axis_mv0:m_axis_mv0:s_axis_mv1:m_axis_mv1:s_axis_at0:m_axis_at0:s_axis_at1:m_axis_at1, ASSOCIATED_RESET aresetn" *)
  input  wire        aclk,
  (* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 aresetn RST" *)
  (* X_INTERFACE_PARAMETER = "POLARITY ACTIVE_LOW" *)
  input  wire        aresetn,

  // control block
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi AWADDR" *)
  (* X_INTERFACE_PARAMETER = "PROTOCOL AXI4LITE, DATA_WIDTH 32, ADDR_WIDTH 12" *)
  input  wire [11:0] s_axi_awaddr,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi AWPROT" *)
  input  wire [2:0]  s_axi_awprot,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi AWVALID" *)
  input  wire        s_axi_awvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi AWREADY" *)
  output wire        s_axi_awready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi WDATA" *)
  input  wire [31:0] s_axi_wdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi WSTRB" *)
  input  wire [3:0]  s_axi_wstrb,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi WVALID" *)
  input  wire        s_axi_wvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi WREADY" *)
  output wire        s_axi_wready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi BRESP" *)
  output wire [1:0]  s_axi_bresp,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi BVALID" *)
  output wire        s_axi_bvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi BREADY" *)
  input  wire        s_axi_bready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi ARADDR" *)
  input  wire [11:0] s_axi_araddr,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi ARPROT" *)
  input  wire [2:0]  s_axi_arprot,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi ARVALID" *)
  input  wire        s_axi_arvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi ARREADY" *)
  output wire        s_axi_arready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi RDATA" *)
  output wire [31:0] s_axi_rdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi RRESP" *)
  output wire [1:0]  s_axi_rresp,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi RVALID" *)
  output wire        s_axi_rvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 s_axi RREADY" *)
  input  wire        s_axi_rready,

  // matvec0: into the engine
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_mv0 TDATA" *)
  (* X_INTERFACE_PARAMETER = "TDATA_NUM_BYTES 8, HAS_TLAST 1, HAS_TREADY 1, HAS_TKEEP 0, HAS_TSTRB 0, TID_WIDTH 0, TDEST_WIDTH 0, TUSER_WIDTH 0" *)
  input  wire [63:0] s_axis_mv0_tdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_mv0 TVALID" *)
  input  wire        s_axis_mv0_tvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_mv0 TREADY" *)
  output wire        s_axis_mv0_tready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_mv0 TLAST" *)
  input  wire        s_axis_mv0_tlast,

  // matvec0: out of the engine
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv0 TDATA" *)
  (* X_INTERFACE_PARAMETER = "TDATA_NUM_BYTES 8, HAS_TLAST 1, HAS_TREADY 1, HAS_TKEEP 1, HAS_TSTRB 0, TID_WIDTH 0, TDEST_WIDTH 0, TUSER_WIDTH 0" *)
  output wire [63:0] m_axis_mv0_tdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv0 TKEEP" *)
  output wire [7:0]  m_axis_mv0_tkeep,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv0 TVALID" *)
  output wire        m_axis_mv0_tvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv0 TREADY" *)
  input  wire        m_axis_mv0_tready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv0 TLAST" *)
  output wire        m_axis_mv0_tlast,

  // matvec1: into the engine
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_mv1 TDATA" *)
  (* X_INTERFACE_PARAMETER = "TDATA_NUM_BYTES 8, HAS_TLAST 1, HAS_TREADY 1, HAS_TKEEP 0, HAS_TSTRB 0, TID_WIDTH 0, TDEST_WIDTH 0, TUSER_WIDTH 0" *)
  input  wire [63:0] s_axis_mv1_tdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_mv1 TVALID" *)
  input  wire        s_axis_mv1_tvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_mv1 TREADY" *)
  output wire        s_axis_mv1_tready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_mv1 TLAST" *)
  input  wire        s_axis_mv1_tlast,

  // matvec1: out of the engine
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv1 TDATA" *)
  (* X_INTERFACE_PARAMETER = "TDATA_NUM_BYTES 8, HAS_TLAST 1, HAS_TREADY 1, HAS_TKEEP 1, HAS_TSTRB 0, TID_WIDTH 0, TDEST_WIDTH 0, TUSER_WIDTH 0" *)
  output wire [63:0] m_axis_mv1_tdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv1 TKEEP" *)
  output wire [7:0]  m_axis_mv1_tkeep,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv1 TVALID" *)
  output wire        m_axis_mv1_tvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv1 TREADY" *)
  input  wire        m_axis_mv1_tready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_mv1 TLAST" *)
  output wire        m_axis_mv1_tlast,

  // attention0: into the engine
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_at0 TDATA" *)
  (* X_INTERFACE_PARAMETER = "TDATA_NUM_BYTES 8, HAS_TLAST 1, HAS_TREADY 1, HAS_TKEEP 0, HAS_TSTRB 0, TID_WIDTH 0, TDEST_WIDTH 0, TUSER_WIDTH 0" *)
  input  wire [63:0] s_axis_at0_tdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_at0 TVALID" *)
  input  wire        s_axis_at0_tvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_at0 TREADY" *)
  output wire        s_axis_at0_tready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_at0 TLAST" *)
  input  wire        s_axis_at0_tlast,

  // attention0: out of the engine
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at0 TDATA" *)
  (* X_INTERFACE_PARAMETER = "TDATA_NUM_BYTES 8, HAS_TLAST 1, HAS_TREADY 1, HAS_TKEEP 1, HAS_TSTRB 0, TID_WIDTH 0, TDEST_WIDTH 0, TUSER_WIDTH 0" *)
  output wire [63:0] m_axis_at0_tdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at0 TKEEP" *)
  output wire [7:0]  m_axis_at0_tkeep,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at0 TVALID" *)
  output wire        m_axis_at0_tvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at0 TREADY" *)
  input  wire        m_axis_at0_tready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at0 TLAST" *)
  output wire        m_axis_at0_tlast,

  // attention1: into the engine
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_at1 TDATA" *)
  (* X_INTERFACE_PARAMETER = "TDATA_NUM_BYTES 8, HAS_TLAST 1, HAS_TREADY 1, HAS_TKEEP 0, HAS_TSTRB 0, TID_WIDTH 0, TDEST_WIDTH 0, TUSER_WIDTH 0" *)
  input  wire [63:0] s_axis_at1_tdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_at1 TVALID" *)
  input  wire        s_axis_at1_tvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_at1 TREADY" *)
  output wire        s_axis_at1_tready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 s_axis_at1 TLAST" *)
  input  wire        s_axis_at1_tlast,

  // attention1: out of the engine
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at1 TDATA" *)
  (* X_INTERFACE_PARAMETER = "TDATA_NUM_BYTES 8, HAS_TLAST 1, HAS_TREADY 1, HAS_TKEEP 1, HAS_TSTRB 0, TID_WIDTH 0, TDEST_WIDTH 0, TUSER_WIDTH 0" *)
  output wire [63:0] m_axis_at1_tdata,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at1 TKEEP" *)
  output wire [7:0]  m_axis_at1_tkeep,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at1 TVALID" *)
  output wire        m_axis_at1_tvalid,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at1 TREADY" *)
  input  wire        m_axis_at1_tready,
  (* X_INTERFACE_INFO = "xilinx.com:interface:axis:1.0 m_axis_at1 TLAST" *)
  output wire        m_axis_at1_tlast
);

  tritforge_top #(
    .ContentId   (CONTENT_ID),
    .HeadDim     (HEAD_DIM),
    .MaxPositions(MAX_POSITIONS)
  ) u_top (
    .clk_i (aclk),
    .rst_ni(aresetn),

    .awaddr_i       (s_axi_awaddr),
    .awvalid_i       (s_axi_awvalid),
    .awready_o       (s_axi_awready),
    .wdata_i       (s_axi_wdata),
    .wstrb_i       (s_axi_wstrb),
    .wvalid_i       (s_axi_wvalid),
    .wready_o       (s_axi_wready),
    .bresp_o       (s_axi_bresp),
    .bvalid_o       (s_axi_bvalid),
    .bready_i       (s_axi_bready),
    .araddr_i       (s_axi_araddr),
    .arvalid_i       (s_axi_arvalid),
    .arready_o       (s_axi_arready),
    .rdata_o       (s_axi_rdata),
    .rresp_o       (s_axi_rresp),
    .rvalid_o       (s_axi_rvalid),
    .rready_i       (s_axi_rready),

    .s_axis_tdata_i({s_axis_at1_tdata, s_axis_at0_tdata, s_axis_mv1_tdata, s_axis_mv0_tdata}),
    .s_axis_tvalid_i({s_axis_at1_tvalid, s_axis_at0_tvalid, s_axis_mv1_tvalid, s_axis_mv0_tvalid}),
    .s_axis_tready_o({s_axis_at1_tready, s_axis_at0_tready, s_axis_mv1_tready, s_axis_mv0_tready}),
    .s_axis_tlast_i({s_axis_at1_tlast, s_axis_at0_tlast, s_axis_mv1_tlast, s_axis_mv0_tlast}),
    .m_axis_tdata_o({m_axis_at1_tdata, m_axis_at0_tdata, m_axis_mv1_tdata, m_axis_mv0_tdata}),
    .m_axis_tvalid_o({m_axis_at1_tvalid, m_axis_at0_tvalid, m_axis_mv1_tvalid, m_axis_mv0_tvalid}),
    .m_axis_tready_i({m_axis_at1_tready, m_axis_at0_tready, m_axis_mv1_tready, m_axis_mv0_tready}),
    .m_axis_tlast_o({m_axis_at1_tlast, m_axis_at0_tlast, m_axis_mv1_tlast, m_axis_mv0_tlast})
  );

  // Every byte of a result beat counts; the second half of an odd packet's last beat is zero, not absent.
  assign m_axis_mv0_tkeep = 8'hff;
  assign m_axis_mv1_tkeep = 8'hff;
  assign m_axis_at0_tkeep = 8'hff;
  assign m_axis_at1_tkeep = 8'hff;

  // Protection bits carry nothing here.
  wire unused_prot = &{1'b0, s_axi_awprot, s_axi_arprot};

endmodule

`default_nettype wire
