// Both circuits and their control block: four engines, each with its own input and output stream, in one clock domain.
//
// Stream s belongs to engine s, in the order matvec0, matvec1, attention0, attention1.
module tritforge_top #(
  parameter logic [31:0] ContentId    = 32'd0,
  parameter int HeadDim      = tritforge_pkg::HEAD_DIM,
  parameter int MaxPositions = tritforge_pkg::MAX_CONTEXT_BOARD
) (
  input  logic         clk_i,
  input  logic         rst_ni,

  input  logic [11:0]  awaddr_i,
  input  logic         awvalid_i,
  output logic         awready_o,
  input  logic [31:0]  wdata_i,
  input  logic [3:0]   wstrb_i,
  input  logic         wvalid_i,
  output logic         wready_o,
  output logic [1:0]   bresp_o,
  output logic         bvalid_o,
  input  logic         bready_i,
  input  logic [11:0]  araddr_i,
  input  logic         arvalid_i,
  output logic         arready_o,
  output logic [31:0]  rdata_o,
  output logic [1:0]   rresp_o,
  output logic         rvalid_o,
  input  logic         rready_i,

  input  logic [255:0] s_axis_tdata_i,
  input  logic [3:0]   s_axis_tvalid_i,
  output logic [3:0]   s_axis_tready_o,
  input  logic [3:0]   s_axis_tlast_i,

  output logic [255:0] m_axis_tdata_o,
  output logic [3:0]   m_axis_tvalid_o,
  input  logic [3:0]   m_axis_tready_i,
  output logic [3:0]   m_axis_tlast_o
);

  logic [3:0]   engine_rst_n;
  logic [3:0]   word_in;
  logic [3:0]   word_out;
  logic [3:0]   stall_in;
  logic [3:0]   stall_out;
  logic [3:0]   stall_turn;
  logic [3:0]   transfer;
  logic [27:0]  errors;
  logic [127:0] error_word;

  tritforge_control #(
    .ContentId   (ContentId),
    .HeadDim     (HeadDim),
    .MaxPositions(MaxPositions)
  ) u_control (
    .clk_i,
    .rst_ni,
    .awaddr_i,
    .awvalid_i,
    .awready_o,
    .wdata_i,
    .wstrb_i,
    .wvalid_i,
    .wready_o,
    .bresp_o,
    .bvalid_o,
    .bready_i,
    .araddr_i,
    .arvalid_i,
    .arready_o,
    .rdata_o,
    .rresp_o,
    .rvalid_o,
    .rready_i,
    .engine_rst_no(engine_rst_n),
    .word_in_i    (word_in),
    .word_out_i   (word_out),
    .stall_in_i   (stall_in),
    .stall_out_i  (stall_out),
    .stall_turn_i (stall_turn),
    .transfer_i   (transfer),
    .errors_i     (errors),
    .error_word_i (error_word)
  );

  for (genvar e = 0; e < 4; e++) begin : gen_engine
    if (e < 2) begin : gen_matvec
      tritforge_matvec u_engine (
        .clk_i,
        .rst_ni         (engine_rst_n[e]),
        .s_axis_tdata_i (s_axis_tdata_i[64*e +: 64]),
        .s_axis_tvalid_i(s_axis_tvalid_i[e]),
        .s_axis_tready_o(s_axis_tready_o[e]),
        .s_axis_tlast_i (s_axis_tlast_i[e]),
        .m_axis_tdata_o (m_axis_tdata_o[64*e +: 64]),
        .m_axis_tvalid_o(m_axis_tvalid_o[e]),
        .m_axis_tready_i(m_axis_tready_i[e]),
        .m_axis_tlast_o (m_axis_tlast_o[e]),
        .word_in_o      (word_in[e]),
        .word_out_o     (word_out[e]),
        .stall_in_o     (stall_in[e]),
        .stall_out_o    (stall_out[e]),
        .stall_turn_o   (stall_turn[e]),
        .transfer_o     (transfer[e]),
        .errors_o       (errors[7*e +: 7]),
        .error_word_o   (error_word[32*e +: 32])
      );
    end else begin : gen_attention
      tritforge_attention #(
        .HeadDim     (HeadDim),
        .MaxPositions(MaxPositions)
      ) u_engine (
        .clk_i,
        .rst_ni         (engine_rst_n[e]),
        .s_axis_tdata_i (s_axis_tdata_i[64*e +: 64]),
        .s_axis_tvalid_i(s_axis_tvalid_i[e]),
        .s_axis_tready_o(s_axis_tready_o[e]),
        .s_axis_tlast_i (s_axis_tlast_i[e]),
        .m_axis_tdata_o (m_axis_tdata_o[64*e +: 64]),
        .m_axis_tvalid_o(m_axis_tvalid_o[e]),
        .m_axis_tready_i(m_axis_tready_i[e]),
        .m_axis_tlast_o (m_axis_tlast_o[e]),
        .word_in_o      (word_in[e]),
        .word_out_o     (word_out[e]),
        .stall_in_o     (stall_in[e]),
        .stall_out_o    (stall_out[e]),
        .stall_turn_o   (stall_turn[e]),
        .transfer_o     (transfer[e]),
        .errors_o       (errors[7*e +: 7]),
        .error_word_o   (error_word[32*e +: 32])
      );
    end
  end

endmodule
