// Control and status over AXI4-Lite: what is loaded, at which clock it runs, and where each engine's time went.
//
// Register map: REGISTERS and ENGINE_REGISTERS in pipelines/golden/formats.py (docs/formats.md). One transaction at a
// time in each direction. An address without a register reads as zero and ignores writes.
module tritforge_control #(
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

  // Engine e: bit e, or the e-th field. Low for one cycle when software asks for it, and in reset.
  output logic [3:0]   engine_rst_no,
  input  logic [3:0]   word_in_i,
  input  logic [3:0]   word_out_i,
  input  logic [3:0]   stall_in_i,
  input  logic [3:0]   stall_out_i,
  input  logic [3:0]   stall_turn_i,
  input  logic [3:0]   transfer_i,
  input  logic [27:0]  errors_i,
  input  logic [127:0] error_word_i
);

  localparam int Engines  = 4;
  localparam int Counters = 6;  // of an engine, in the order of their registers

  // ---------------------------------------------------------------- write channel
  logic        write;
  logic        bvalid_q;
  logic [31:0] scratch_q;
  logic [3:0]  reset_q;   // pulses
  logic        clear_q;

  // Address and data are taken together, as soon as the last answer is gone.
  assign write     = awvalid_i && wvalid_i && !bvalid_q;
  assign awready_o = write;
  assign wready_o  = write;
  assign bvalid_o  = bvalid_q;
  assign bresp_o   = 2'b00;

  logic control_write;
  assign control_write = write && {awaddr_i[11:2], 2'b00} == tritforge_pkg::REG_CONTROL;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      bvalid_q  <= 1'b0;
      scratch_q <= '0;
      reset_q   <= '0;
      clear_q   <= 1'b0;
    end else begin
      if (write) begin
        bvalid_q <= 1'b1;
      end else if (bready_i) begin
        bvalid_q <= 1'b0;
      end
      reset_q <= control_write && wstrb_i[0] ? wdata_i[3:0] : 4'd0;
      clear_q <= control_write && wstrb_i[1] && wdata_i[8];
      if (write && {awaddr_i[11:2], 2'b00} == tritforge_pkg::REG_SCRATCH) begin
        for (int unsigned i = 0; i < 4; i++) begin
          if (wstrb_i[i]) begin
            scratch_q[8*i +: 8] <= wdata_i[8*i +: 8];
          end
        end
      end
    end
  end

  // Registered, so that the engines' resets do not hang on a LUT.
  always_ff @(posedge clk_i) begin
    engine_rst_no <= rst_ni ? ~reset_q : 4'd0;
  end

  // ---------------------------------------------------------------- counters
  logic [63:0]                    cycles_q /* verilator public_flat_rw */;
  logic [31:0]                    cycles_high_q;  // as it was when the low half was read
  logic [Engines*Counters-1:0]    count;
  logic [32*Engines*Counters-1:0] counters;       // engine e, counter c in word Counters * e + c

  always_comb begin
    for (int unsigned e = 0; e < Engines; e++) begin
      count[Counters*e +: Counters] = {transfer_i[e], stall_turn_i[e], stall_out_i[e], stall_in_i[e],
                                       word_out_i[e], word_in_i[e]};
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      cycles_q <= '0;
    end else begin
      cycles_q <= cycles_q + 64'd1;
    end
  end

  for (genvar i = 0; i < Engines * Counters; i++) begin : gen_counter
    logic [31:0] value_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni || clear_q || reset_q[i/Counters]) begin
        value_q <= '0;
      end else if (count[i]) begin
        value_q <= value_q + 32'd1;
      end
    end
    assign counters[32*i +: 32] = value_q;
  end

  // ---------------------------------------------------------------- read channel
  // Two cycles: the engine's register or the common one is selected, then the answer stands.
  logic        read;
  logic        select_q;
  logic [11:0] address_q;
  logic        rvalid_q;
  logic [31:0] rdata_q;
  logic [31:0] common;
  logic [31:0] engine;
  logic [1:0]  engine_index;

  assign read      = arvalid_i && !select_q && !rvalid_q;
  assign arready_o = read;
  assign rvalid_o  = rvalid_q;
  assign rdata_o   = rdata_q;
  assign rresp_o   = 2'b00;

  always_comb begin
    case (address_q)
      tritforge_pkg::REG_ID:         common = tritforge_pkg::CONTROL_ID;
      tritforge_pkg::REG_VERSION:    common = tritforge_pkg::FORMATS_VERSION;
      tritforge_pkg::REG_CONTENT_ID: common = ContentId;
      tritforge_pkg::REG_CONFIG:     common = {16'(MaxPositions), 8'(HeadDim / 8), 8'(Engines)};
      tritforge_pkg::REG_CYCLES_LO:  common = cycles_q[31:0];
      tritforge_pkg::REG_CYCLES_HI:  common = cycles_high_q;
      tritforge_pkg::REG_SCRATCH:    common = scratch_q;
      default:                       common = 32'd0;
    endcase
  end

  assign engine_index = address_q[7:6];

  always_comb begin
    case (address_q[5:0])
      tritforge_pkg::ENGINE_REG_ERRORS:     engine = {25'd0, errors_i[7*engine_index +: 7]};
      tritforge_pkg::ENGINE_REG_ERROR_WORD: engine = error_word_i[32*engine_index +: 32];
      default: begin
        engine = 32'd0;
        for (int unsigned e = 0; e < Engines; e++) begin
          for (int unsigned c = 0; c < Counters; c++) begin
            if (address_q[7:0] == 8'(64 * e + 4 * c)) begin
              engine = counters[32*(Counters*e+c) +: 32];
            end
          end
        end
      end
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      select_q <= 1'b0;
      rvalid_q <= 1'b0;
    end else begin
      select_q <= read;
      if (select_q) begin
        rvalid_q <= 1'b1;
      end else if (rready_i) begin
        rvalid_q <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (read) begin
      address_q <= {araddr_i[11:2], 2'b00};
    end
    if (select_q) begin
      rdata_q <= address_q[11:8] == tritforge_pkg::ENGINE_BASE[11:8] ? engine : common;
      if (address_q == tritforge_pkg::REG_CYCLES_LO) begin
        cycles_high_q <= cycles_q[63:32];
      end
    end
  end

`ifdef TRITFORGE_SVA
  a_answer_stays : assert property (@(posedge clk_i) disable iff (!rst_ni)
    rvalid_o && !rready_i |=> rvalid_o && $stable(rdata_q));
  a_response_stays : assert property (@(posedge clk_i) disable iff (!rst_ni)
    bvalid_o && !bready_i |=> bvalid_o);
  a_one_answer : assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(select_q && rvalid_q));
`endif

  logic unused_bits;
  assign unused_bits = &{1'b0, awaddr_i[1:0], araddr_i[1:0]};

endmodule
