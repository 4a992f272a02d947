// Ternary matrix-vector engine of one port: groups of packed rows in, one int32 a row out, one word a cycle.
//
// A group is [header][x, if the header says so][rows]; format in docs/formats.md. Words flow through a pipeline that
// never stops; only the input does, when the results of rows already accepted could fill the output FIFO (credits).
// A header costs its own cycle and nothing else: x is written while the rows before it are still being summed, since
// each row word reads its x in the cycle in which it is accepted.
//
// An error (a wrong header, an illegal trit code, TLAST inside a group) is found in the cycle in which its word is
// accepted. That word and all after it have no effect: rows finished before it may still be sent, the packet is never
// completed, and the input is swallowed until reset.
module tritforge_matvec #(
  // Trits of the longest row; depth of the x memory.
  parameter int MaxRowLength = tritforge_pkg::MAX_ROW_LENGTH,
  // Bits of a row's sum; see tritforge_ternary_dot.
  parameter int AccWidth     = 21,
  // Result beats that may be under way; more than the pipeline is long.
  parameter int FifoDepth    = 32
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic [63:0] s_axis_tdata_i,
  input  logic        s_axis_tvalid_i,
  output logic        s_axis_tready_o,
  input  logic        s_axis_tlast_i,

  output logic [63:0] m_axis_tdata_o,
  output logic        m_axis_tvalid_o,
  input  logic        m_axis_tready_i,
  output logic        m_axis_tlast_o,

  // Events of this cycle, for the counters
  output logic        word_in_o,
  output logic        word_out_o,
  output logic        stall_in_o,
  output logic        stall_out_o,
  output logic        stall_turn_o,
  output logic        transfer_o,
  // Sticky until reset
  output logic [6:0]  errors_o,
  output logic [31:0] error_word_o
);

  localparam int Lanes    = tritforge_pkg::TRITS_PER_WORD;
  localparam int Banks    = tritforge_pkg::TRITS_PER_BYTE;  // x words that one row word meets
  localparam int XDepth   = (MaxRowLength + Lanes - 1) / Lanes;
  localparam int XAddr    = $clog2(XDepth);
  localparam int Latency  = 7;  // from acceptance to the row's sum: decode, then six of tritforge_ternary_dot
  localparam int CreditWidth = $clog2(FifoDepth + 1);

  typedef enum logic [1:0] {StHeader, StX, StRows, StError} state_e;

  // ---------------------------------------------------------------- input
  state_e      state_q;
  logic        run_q;         // low in reset, so that no word is taken then
  logic        accept;
  logic [12:0] length_q;      // trits of a row
  logic [12:0] left_q;        // trits of the row, or entries of x, that are still to come
  logic [23:0] rows_q;        // rows still to come
  logic [12:0] x_length_q;    // entries of the x in memory; 0: none since reset
  logic [31:0] index_q;       // of this word in its transfer
  logic        inside_q;      // between the first word of a transfer and its TLAST
  logic        second_q;      // this row's result is the upper half of a beat
  logic [CreditWidth-1:0] credit_q;

  logic x_last;
  logic row_last;
  logic group_last;
  assign x_last     = left_q <= 13'd8;
  assign row_last   = left_q <= Lanes[12:0];
  assign group_last = row_last && rows_q == 24'd1;

  assign s_axis_tready_o = run_q && (state_q != StRows || credit_q != '0);
  assign accept          = s_axis_tvalid_i && s_axis_tready_o;

  // ---------------------------------------------------------------- what may be wrong with this word
  logic [7:0]  check;
  logic [7:0]  illegal;
  logic [15:0] header_length;
  logic [23:0] header_rows;
  logic        header_load;
  logic        bad_field;
  logic        x_missing;
  logic [6:0]  error;
  logic        good;          // an accepted word that may have its effect

  assign header_load   = s_axis_tdata_i[12];
  assign header_length = s_axis_tdata_i[31:16];
  assign header_rows   = s_axis_tdata_i[55:32];

  assign check = s_axis_tdata_i[7:0]   ^ s_axis_tdata_i[15:8]  ^ s_axis_tdata_i[23:16] ^ s_axis_tdata_i[31:24]
               ^ s_axis_tdata_i[39:32] ^ s_axis_tdata_i[47:40] ^ s_axis_tdata_i[55:48] ^ s_axis_tdata_i[63:56];

  assign bad_field = s_axis_tdata_i[15:13] != 3'd0 || header_length == 16'd0
                  || header_length > MaxRowLength[15:0] || header_rows == 24'd0;
  assign x_missing = !header_load && {3'd0, x_length_q} < header_length;

  always_comb begin
    for (int unsigned i = 0; i < 8; i++) begin
      illegal[i] = s_axis_tdata_i[8*i +: 8] >= tritforge_pkg::TRIT_CODES[7:0];
    end
  end

  // The first in the order of the bits wins.
  always_comb begin
    error = '0;
    case (state_q)
      StHeader: begin
        if (s_axis_tdata_i[7:0] != tritforge_pkg::MATVEC_MAGIC) begin
          error[tritforge_pkg::ERROR_BAD_MAGIC] = 1'b1;
        end else if (s_axis_tdata_i[11:8] != tritforge_pkg::HEADER_VERSION) begin
          error[tritforge_pkg::ERROR_BAD_VERSION] = 1'b1;
        end else if (check != 8'd0) begin
          error[tritforge_pkg::ERROR_BAD_CHECK] = 1'b1;
        end else if (bad_field) begin
          error[tritforge_pkg::ERROR_BAD_FIELD] = 1'b1;
        end else if (s_axis_tlast_i) begin
          error[tritforge_pkg::ERROR_EARLY_TLAST] = 1'b1;
        end else if (x_missing) begin
          error[tritforge_pkg::ERROR_X_MISSING] = 1'b1;
        end
      end
      StX: begin
        error[tritforge_pkg::ERROR_EARLY_TLAST] = s_axis_tlast_i;
      end
      StRows: begin
        if (illegal != 8'd0) begin
          error[tritforge_pkg::ERROR_ILLEGAL_CODE] = 1'b1;
        end else if (s_axis_tlast_i && !group_last) begin
          error[tritforge_pkg::ERROR_EARLY_TLAST] = 1'b1;
        end
      end
      default: begin
        error = '0;
      end
    endcase
  end

  assign good = accept && error == '0 && state_q != StError;

  logic x_write;
  logic row_word;
  logic row_done;
  assign x_write  = good && state_q == StX;
  assign row_word = good && state_q == StRows;
  assign row_done = row_word && row_last;

  // ---------------------------------------------------------------- state
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q      <= StHeader;
      run_q        <= 1'b0;
      x_length_q   <= '0;
      index_q      <= '0;
      inside_q     <= 1'b0;
      second_q     <= 1'b0;
      errors_o     <= '0;
      error_word_o <= '0;
    end else begin
      run_q <= 1'b1;
      if (accept) begin
        index_q  <= s_axis_tlast_i ? '0 : index_q + 1'b1;
        inside_q <= !s_axis_tlast_i;
        if (error != '0) begin
          state_q      <= StError;
          errors_o     <= error;
          error_word_o <= index_q;
        end else begin
          case (state_q)
            StHeader: begin
              state_q <= header_load ? StX : StRows;
              if (header_load) begin
                x_length_q <= header_length[12:0];
              end
            end
            StX: begin
              if (x_last) begin
                state_q <= StRows;
              end
            end
            StRows: begin
              if (row_last) begin
                second_q <= !second_q && !s_axis_tlast_i;
              end
              if (group_last) begin
                state_q <= StHeader;
              end
            end
            default: begin
              state_q <= StError;
            end
          endcase
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (accept) begin
      if (state_q == StHeader) begin
        length_q <= header_length[12:0];
        left_q   <= header_length[12:0];
        rows_q   <= header_rows;
      end else if (state_q == StX) begin
        left_q <= x_last ? length_q : left_q - 13'd8;
      end else begin
        left_q <= row_last ? length_q : left_q - Lanes[12:0];
        rows_q <= row_last ? rows_q - 24'd1 : rows_q;
      end
    end
  end

  // ---------------------------------------------------------------- x memory
  // Word w of x lies in bank w mod 5 at w div 5; row word k meets x words 5k .. 5k+4, all banks at address k.
  logic [Banks-1:0]    x_bank_q;  // one-hot: bank of the next x word
  logic [XAddr-1:0]    x_addr_q;  // of the x word to write, or of the row word to read
  logic [64*Banks-1:0] x_read_q;

  always_ff @(posedge clk_i) begin
    if (accept) begin
      if (state_q == StHeader || (state_q == StX && x_last) || (state_q == StRows && row_last)) begin
        x_bank_q <= {{(Banks-1){1'b0}}, 1'b1};
        x_addr_q <= '0;
      end else if (state_q == StX) begin
        x_bank_q <= {x_bank_q[Banks-2:0], x_bank_q[Banks-1]};
        x_addr_q <= x_addr_q + {{(XAddr-1){1'b0}}, x_bank_q[Banks-1]};
      end else begin
        x_addr_q <= x_addr_q + 1'b1;
      end
    end
  end

  for (genvar b = 0; b < Banks; b++) begin : gen_bank
    // Not reset: so it becomes a block RAM.
    (* ram_style = "block" *) logic [63:0] mem [0:(1<<XAddr)-1];
    always_ff @(posedge clk_i) begin
      if (x_write && x_bank_q[b]) begin
        mem[x_addr_q] <= s_axis_tdata_i;
      end
      if (accept) begin
        x_read_q[64*b +: 64] <= mem[x_addr_q];
      end
    end
  end

  // ---------------------------------------------------------------- decode, and the flags that travel with a word
  logic [Lanes-1:0] positive_q;
  logic [Lanes-1:0] negative_q;

  // A memory that is only read: LUTs in the fabric, a table in the simulation.
  logic [9:0] trits_rom [0:255];  // {positive, negative}
  initial begin
    for (int unsigned code = 0; code < 256; code++) begin
      trits_rom[code] = tritforge_pkg::trits_of_code(code[7:0]);
    end
  end

  always_ff @(posedge clk_i) begin
    if (row_word) begin
      for (int unsigned i = 0; i < 8; i++) begin
        {positive_q[5*i +: 5], negative_q[5*i +: 5]} <= trits_rom[s_axis_tdata_i[8*i +: 8]];
      end
    end
  end

  // Index s: the word is in stage s (accepted s + 1 cycles ago).
  logic [Latency-1:0] valid_q;
  logic [Latency-2:0] first_q;
  logic [Latency-1:0] last_q;
  logic [Latency-1:0] upper_q;  // its result is the upper half of a beat
  logic [Latency-1:0] end_q;    // last word of the transfer

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= '0;
    end else begin
      valid_q <= {valid_q[Latency-2:0], row_word};
    end
  end

  always_ff @(posedge clk_i) begin
    first_q <= {first_q[Latency-3:0], x_addr_q == '0};
    last_q  <= {last_q[Latency-2:0], row_last};
    upper_q <= {upper_q[Latency-2:0], second_q};
    end_q   <= {end_q[Latency-2:0], s_axis_tlast_i};
  end

  logic [AccWidth-1:0] sum;

  tritforge_ternary_dot #(
    .AccWidth(AccWidth)
  ) u_dot (
    .clk_i,
    .valid_i    (valid_q[5:0]),
    .positive_i (positive_q),
    .negative_i (negative_q),
    .x_i        (x_read_q),
    .first_i    (first_q[5]),
    .sum_o      (sum)
  );

  // ---------------------------------------------------------------- two results a beat
  logic                row_out;
  logic                beat;
  logic [AccWidth-1:0] lower_q;
  logic [31:0]         sum32;
  logic [31:0]         lower32;
  logic                pop;

  assign row_out = valid_q[Latency-1] && last_q[Latency-1];
  assign beat    = row_out && (upper_q[Latency-1] || end_q[Latency-1]);
  assign sum32   = {{(32-AccWidth){sum[AccWidth-1]}}, sum};
  assign lower32 = {{(32-AccWidth){lower_q[AccWidth-1]}}, lower_q};

  always_ff @(posedge clk_i) begin
    if (row_out) begin
      lower_q <= sum;
    end
  end

  tritforge_result_fifo #(
    .Depth(FifoDepth)
  ) u_fifo (
    .clk_i,
    .rst_ni,
    .wr_valid_i(beat),
    .wr_data_i (upper_q[Latency-1] ? {sum32, lower32} : {32'd0, sum32}),
    .wr_last_i (end_q[Latency-1]),
    .m_axis_tdata_o,
    .m_axis_tvalid_o,
    .m_axis_tready_i,
    .m_axis_tlast_o,
    .pop_o     (pop)
  );

  // A row that completes a beat takes its credit when its last word is accepted.
  logic take;
  assign take = row_done && (second_q || s_axis_tlast_i);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      credit_q <= FifoDepth[CreditWidth-1:0];
    end else if (take != pop) begin
      credit_q <= take ? credit_q - 1'b1 : credit_q + 1'b1;
    end
  end

  // ---------------------------------------------------------------- events
  assign word_in_o    = accept;
  assign word_out_o   = m_axis_tvalid_o && m_axis_tready_i;
  assign transfer_o   = accept && s_axis_tlast_i;
  assign stall_in_o   = inside_q && s_axis_tready_o && !s_axis_tvalid_i;
  assign stall_out_o  = run_q && s_axis_tvalid_i && !s_axis_tready_o;
  assign stall_turn_o = 1'b0;  // nothing but the output ever stops this engine

`ifdef TRITFORGE_SVA
  a_credit_bound : assert property (@(posedge clk_i) disable iff (!rst_ni)
    credit_q <= FifoDepth[CreditWidth-1:0]);
  a_credit_left : assert property (@(posedge clk_i) disable iff (!rst_ni)
    take |-> credit_q != '0);
  a_one_error : assert property (@(posedge clk_i) disable iff (!rst_ni)
    $onehot0(errors_o));
  a_error_sticks : assert property (@(posedge clk_i) disable iff (!rst_ni)
    errors_o != '0 |=> $stable(errors_o) && $stable(error_word_o));
  a_no_rows_after_error : assert property (@(posedge clk_i) disable iff (!rst_ni)
    errors_o != '0 |-> !row_word);
  a_x_never_behind_memory : assert property (@(posedge clk_i) disable iff (!rst_ni)
    (row_word || x_write) |-> int'(x_addr_q) < XDepth);
  // The sum of 4096 products does not leave its width: the sign of one more bit would be the same.
  a_sum_fits : assert property (@(posedge clk_i) disable iff (!rst_ni)
    row_out |-> 32'($signed(sum)) <= 128 * int'(MaxRowLength) && 32'($signed(sum)) >= -128 * int'(MaxRowLength));
`endif

endmodule
