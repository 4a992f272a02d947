// Fills every packet of an AXI4-Stream to whole cache lines of 32 bytes, with zero words.
//
// Needed before an AXI DMA that writes through the coherent port of a Zynq-7000 (S_AXI_ACP): short bursts with partial
// strobes can corrupt lines of the L1 caches there (UG585, "ACP limitations"). After this module every packet is a
// multiple of four 64-bit words and every byte is strobed. The receiving buffer must have room for the filling.
//
// Plain Verilog 2001, as a module reference in a Vivado block design must be. No latency, no buffer: the words of the
// packet pass combinationally, the filling is made here.

`default_nettype none

module axis_pad32 (
  (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF s_axis:m_axis, ASSOCIATED_RESET aresetn" *)
  input  wire        aclk,
  input  wire        aresetn,

  input  wire [63:0] s_axis_tdata,
  input  wire [7:0]  s_axis_tkeep,
  input  wire        s_axis_tvalid,
  output wire        s_axis_tready,
  input  wire        s_axis_tlast,

  output wire [63:0] m_axis_tdata,
  output wire [7:0]  m_axis_tkeep,
  output wire        m_axis_tvalid,
  input  wire        m_axis_tready,
  output wire        m_axis_tlast
);

  // Position of the next output word in its cache line, and whether it belongs to the filling.
  reg [1:0] word_q;
  reg       filling_q;

  wire last_of_line = (word_q == 2'd3);
  wire accepted     = m_axis_tvalid & m_axis_tready;

  // Bytes that are not kept are not data: they become zero, so that what reaches memory is defined.
  wire [63:0] kept;
  genvar i;
  generate
    for (i = 0; i < 8; i = i + 1) begin : gen_kept
      assign kept[8*i +: 8] = s_axis_tkeep[i] ? s_axis_tdata[8*i +: 8] : 8'd0;
    end
  endgenerate

  assign m_axis_tdata  = filling_q ? 64'd0 : kept;
  assign m_axis_tkeep  = 8'hFF;
  assign m_axis_tvalid = filling_q | s_axis_tvalid;
  assign m_axis_tlast  = last_of_line & (filling_q | s_axis_tlast);
  assign s_axis_tready = ~filling_q & m_axis_tready;

  always @(posedge aclk) begin
    if (!aresetn) begin
      word_q    <= 2'd0;
      filling_q <= 1'b0;
    end else if (accepted) begin
      word_q <= word_q + 2'd1;
      if (last_of_line) begin
        filling_q <= 1'b0;
      end else if (s_axis_tlast & ~filling_q) begin
        filling_q <= 1'b1;
      end
    end
  end

endmodule

`default_nettype wire
