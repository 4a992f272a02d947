// Makes the accesses of a DMA coherent with the caches of the CPUs: a wire-through of AXI3 that drives AxCACHE and AxUSER.
//
// S_AXI_ACP of a Zynq-7000 looks into the caches only for accesses with AxUSER[0] = 1 and a cacheable AxCACHE; the AXI
// DMA drives neither as needed (AxCACHE 0011, no AxUSER). Everything else passes unchanged. Writes must come as whole
// cache lines with all strobes set: axis_pad32 sees to that at the source of each stream.
//
// Plain Verilog 2001, as a module reference in a Vivado block design must be.

`default_nettype none

module acp_port #(
  // Bits of an id: three is what S_AXI_ACP has, and what eight masters behind one interconnect need.
  parameter ID_WIDTH = 3
) (
  (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF s_axi:m_axi, ASSOCIATED_RESET aresetn" *)
  input  wire                aclk,
  input  wire                aresetn,

  (* X_INTERFACE_PARAMETER = "PROTOCOL AXI3, DATA_WIDTH 64, ADDR_WIDTH 32, MAX_BURST_LENGTH 16" *)
  input  wire [ID_WIDTH-1:0] s_axi_awid,
  input  wire [31:0]         s_axi_awaddr,
  input  wire [3:0]          s_axi_awlen,
  input  wire [2:0]          s_axi_awsize,
  input  wire [1:0]          s_axi_awburst,
  input  wire [1:0]          s_axi_awlock,
  input  wire [2:0]          s_axi_awprot,
  input  wire [3:0]          s_axi_awqos,
  input  wire [3:0]          s_axi_awcache,
  input  wire                s_axi_awvalid,
  output wire                s_axi_awready,

  input  wire [ID_WIDTH-1:0] s_axi_wid,
  input  wire [63:0]         s_axi_wdata,
  input  wire [7:0]          s_axi_wstrb,
  input  wire                s_axi_wlast,
  input  wire                s_axi_wvalid,
  output wire                s_axi_wready,

  output wire [ID_WIDTH-1:0] s_axi_bid,
  output wire [1:0]          s_axi_bresp,
  output wire                s_axi_bvalid,
  input  wire                s_axi_bready,

  input  wire [ID_WIDTH-1:0] s_axi_arid,
  input  wire [31:0]         s_axi_araddr,
  input  wire [3:0]          s_axi_arlen,
  input  wire [2:0]          s_axi_arsize,
  input  wire [1:0]          s_axi_arburst,
  input  wire [1:0]          s_axi_arlock,
  input  wire [2:0]          s_axi_arprot,
  input  wire [3:0]          s_axi_arqos,
  input  wire [3:0]          s_axi_arcache,
  input  wire                s_axi_arvalid,
  output wire                s_axi_arready,

  output wire [ID_WIDTH-1:0] s_axi_rid,
  output wire [63:0]         s_axi_rdata,
  output wire [1:0]          s_axi_rresp,
  output wire                s_axi_rlast,
  output wire                s_axi_rvalid,
  input  wire                s_axi_rready,

  (* X_INTERFACE_PARAMETER = "PROTOCOL AXI3, DATA_WIDTH 64, ADDR_WIDTH 32, MAX_BURST_LENGTH 16" *)
  output wire [ID_WIDTH-1:0] m_axi_awid,
  output wire [31:0]         m_axi_awaddr,
  output wire [3:0]          m_axi_awlen,
  output wire [2:0]          m_axi_awsize,
  output wire [1:0]          m_axi_awburst,
  output wire [1:0]          m_axi_awlock,
  output wire [2:0]          m_axi_awprot,
  output wire [3:0]          m_axi_awqos,
  output wire [3:0]          m_axi_awcache,
  output wire [4:0]          m_axi_awuser,
  output wire                m_axi_awvalid,
  input  wire                m_axi_awready,

  output wire [ID_WIDTH-1:0] m_axi_wid,
  output wire [63:0]         m_axi_wdata,
  output wire [7:0]          m_axi_wstrb,
  output wire                m_axi_wlast,
  output wire                m_axi_wvalid,
  input  wire                m_axi_wready,

  input  wire [ID_WIDTH-1:0] m_axi_bid,
  input  wire [1:0]          m_axi_bresp,
  input  wire                m_axi_bvalid,
  output wire                m_axi_bready,

  output wire [ID_WIDTH-1:0] m_axi_arid,
  output wire [31:0]         m_axi_araddr,
  output wire [3:0]          m_axi_arlen,
  output wire [2:0]          m_axi_arsize,
  output wire [1:0]          m_axi_arburst,
  output wire [1:0]          m_axi_arlock,
  output wire [2:0]          m_axi_arprot,
  output wire [3:0]          m_axi_arqos,
  output wire [3:0]          m_axi_arcache,
  output wire [4:0]          m_axi_aruser,
  output wire                m_axi_arvalid,
  input  wire                m_axi_arready,

  input  wire [ID_WIDTH-1:0] m_axi_rid,
  input  wire [63:0]         m_axi_rdata,
  input  wire [1:0]          m_axi_rresp,
  input  wire                m_axi_rlast,
  input  wire                m_axi_rvalid,
  output wire                m_axi_rready
);

  // Write-back, read and write allocate; AxUSER[0] shared, AxUSER[4:1] the inner attributes, the same policy.
  localparam [3:0] COHERENT_CACHE = 4'b1111;
  localparam [4:0] COHERENT_USER  = 5'b11111;

  assign m_axi_awid    = s_axi_awid;
  assign m_axi_awaddr  = s_axi_awaddr;
  assign m_axi_awlen   = s_axi_awlen;
  assign m_axi_awsize  = s_axi_awsize;
  assign m_axi_awburst = s_axi_awburst;
  assign m_axi_awlock  = s_axi_awlock;
  assign m_axi_awprot  = s_axi_awprot;
  assign m_axi_awqos   = s_axi_awqos;
  assign m_axi_awcache = COHERENT_CACHE;
  assign m_axi_awuser  = COHERENT_USER;
  assign m_axi_awvalid = s_axi_awvalid;
  assign s_axi_awready = m_axi_awready;

  assign m_axi_wid     = s_axi_wid;
  assign m_axi_wdata   = s_axi_wdata;
  assign m_axi_wstrb   = s_axi_wstrb;
  assign m_axi_wlast   = s_axi_wlast;
  assign m_axi_wvalid  = s_axi_wvalid;
  assign s_axi_wready  = m_axi_wready;

  assign s_axi_bid     = m_axi_bid;
  assign s_axi_bresp   = m_axi_bresp;
  assign s_axi_bvalid  = m_axi_bvalid;
  assign m_axi_bready  = s_axi_bready;

  assign m_axi_arid    = s_axi_arid;
  assign m_axi_araddr  = s_axi_araddr;
  assign m_axi_arlen   = s_axi_arlen;
  assign m_axi_arsize  = s_axi_arsize;
  assign m_axi_arburst = s_axi_arburst;
  assign m_axi_arlock  = s_axi_arlock;
  assign m_axi_arprot  = s_axi_arprot;
  assign m_axi_arqos   = s_axi_arqos;
  assign m_axi_arcache = COHERENT_CACHE;
  assign m_axi_aruser  = COHERENT_USER;
  assign m_axi_arvalid = s_axi_arvalid;
  assign s_axi_arready = m_axi_arready;

  assign s_axi_rid     = m_axi_rid;
  assign s_axi_rdata   = m_axi_rdata;
  assign s_axi_rresp   = m_axi_rresp;
  assign s_axi_rlast   = m_axi_rlast;
  assign s_axi_rvalid  = m_axi_rvalid;
  assign m_axi_rready  = s_axi_rready;

  // The incoming attributes are replaced, and nothing here has state.
  wire unused = &{1'b0, aclk, aresetn, s_axi_awcache, s_axi_arcache, 1'b0};

endmodule

`default_nettype wire
