// Attention engine of one port: heads of one token in, numerators and denominator of the integer softmax out.
//
// A head is [header][q][K: T rows][V: T rows]; format and arithmetic in docs/formats.md. Two passes over one stream:
//   K  eight products a cycle; each row's sum is scaled by m to a score z, kept, and the largest is remembered;
//   V  p = table[max z - z] of the row; p * V is added to HeadDim accumulators, and p to the denominator.
// Both passes share eight multipliers. V words wait in a delay line for as long as the last scores need, so that the
// turn from K to V costs nothing: the header and q of the next head fill the gap that this leaves in the multipliers.
// Results stay in the accumulators while they are sent (HeadDim / 2 + 1 beats); the next head's V waits for that, which
// for HeadDim = 96 happens only below five positions or when the output is slow.
//
// An error (a wrong header, TLAST inside a head) is found in the cycle in which its word is accepted. The head sends
// nothing, earlier heads do, the packet is never completed, and the input is swallowed until reset.
module tritforge_attention #(
  // Entries of a head; a multiple of 8, 8 to 504.
  parameter int HeadDim      = tritforge_pkg::HEAD_DIM,
  // Largest T; 1 to 2048.
  parameter int MaxPositions = tritforge_pkg::MAX_CONTEXT_BOARD
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

  localparam int Words      = HeadDim / 8;  // of a row, and of q
  localparam int WordWidth  = Words > 1 ? $clog2(Words) : 1;
  localparam int RowWidth   = $clog2(MaxPositions + 1);
  localparam int AddrWidth  = MaxPositions > 1 ? $clog2(MaxPositions) : 1;
  // Bits of a probability: T * (2^b - 1) * 128 stays below 2^31 up to T = 512 for 15, up to 2048 for 13.
  localparam int ProbBits   = MaxPositions <= tritforge_pkg::MAX_CONTEXT_BOARD ? 15 : 13;
  // |q.k| <= HeadDim * 128 * 128, so 22 bits signed for 96; times m < 2^17, shifted by 24: seven bits fewer.
  localparam int ScoreWidth = $clog2(HeadDim * 16384 + 1) + 1;
  localparam int ZWidth     = ScoreWidth - 7;
  localparam int SumWidth   = 24;  // T * (2^b - 1) < 2^24 for both b
  // Cycles from the acceptance of a V word to the multipliers, and from there back to the read of its score.
  // The last score is in memory and counted in the maximum nine cycles after its last K word, which may be one cycle
  // before the first V word.
  localparam int Delay      = 11;
  localparam int Lookup     = 3;

  if (HeadDim % 8 != 0 || HeadDim == 0 || HeadDim > 504) begin : gen_bad_head_dim
    tritforge_error_head_dim_must_be_a_multiple_of_8_up_to_504 u_error ();
  end
  if (MaxPositions == 0 || MaxPositions > tritforge_pkg::MAX_CONTEXT) begin : gen_bad_positions
    tritforge_error_max_positions_must_be_1_to_2048 u_error ();
  end

  // ---------------------------------------------------------------- input
  typedef enum logic [2:0] {StHeader, StQ, StK, StV, StError} state_e;

  state_e               state_q;
  logic                 run_q;      // low in reset, so that no word is taken then
  logic                 accept;
  logic                 good;       // an accepted word that may have its effect
  logic [16:0]          m_q;
  logic [RowWidth-1:0]  length_q;   // T
  logic [RowWidth-1:0]  rows_q;     // of K or V, still to come
  logic [WordWidth-1:0] word_q;     // of this word in its row
  logic [31:0]          index_q;    // of this word in its transfer
  logic                 inside_q;   // between the first word of a transfer and its TLAST
  logic [3:0]           v_age_q;    // cycles until the delay line is empty
  logic                 scoring;    // products of K are on their way to scores
  logic                 draining_q; // from a head's last V word until its last result is sent
  logic                 drain_done;

  logic word_last;
  logic row_last;
  assign word_last = word_q == WordWidth'(Words - 1);
  assign row_last  = rows_q == RowWidth'(1);

  logic ready;
  always_comb begin
    case (state_q)
      StHeader: ready = !scoring;         // m must not change under a score; only with rows of a few words
      StK:      ready = v_age_q == 4'd0;  // the multipliers belong to V until its delay line is empty
      StV:      ready = !draining_q;      // the accumulators still hold the last head's results
      default:  ready = 1'b1;
    endcase
  end
  assign s_axis_tready_o = run_q && ready;
  assign accept          = s_axis_tvalid_i && s_axis_tready_o;

  // ---------------------------------------------------------------- what may be wrong with this word
  logic [7:0]  check;
  logic [15:0] header_length;
  logic        bad_field;
  logic [6:0]  error;

  assign header_length = s_axis_tdata_i[31:16];

  assign check = s_axis_tdata_i[7:0]   ^ s_axis_tdata_i[15:8]  ^ s_axis_tdata_i[23:16] ^ s_axis_tdata_i[31:24]
               ^ s_axis_tdata_i[39:32] ^ s_axis_tdata_i[47:40] ^ s_axis_tdata_i[55:48] ^ s_axis_tdata_i[63:56];

  assign bad_field = s_axis_tdata_i[15:12] != 4'd0 || header_length == 16'd0 || header_length > 16'(MaxPositions)
                  || s_axis_tdata_i[49] || s_axis_tdata_i[55:50] != 6'(Words);

  // The first in the order of the bits wins.
  always_comb begin
    error = '0;
    case (state_q)
      StHeader: begin
        if (s_axis_tdata_i[7:0] != tritforge_pkg::ATTENTION_MAGIC) begin
          error[tritforge_pkg::ERROR_BAD_MAGIC] = 1'b1;
        end else if (s_axis_tdata_i[11:8] != tritforge_pkg::HEADER_VERSION) begin
          error[tritforge_pkg::ERROR_BAD_VERSION] = 1'b1;
        end else if (check != 8'd0) begin
          error[tritforge_pkg::ERROR_BAD_CHECK] = 1'b1;
        end else if (bad_field) begin
          error[tritforge_pkg::ERROR_BAD_FIELD] = 1'b1;
        end else if (s_axis_tlast_i) begin
          error[tritforge_pkg::ERROR_EARLY_TLAST] = 1'b1;
        end
      end
      StQ, StK: begin
        error[tritforge_pkg::ERROR_EARLY_TLAST] = s_axis_tlast_i;
      end
      StV: begin
        error[tritforge_pkg::ERROR_EARLY_TLAST] = s_axis_tlast_i && !(word_last && row_last);
      end
      default: begin
        error = '0;
      end
    endcase
  end

  assign good = accept && error == '0 && state_q != StError;

  logic q_word;
  logic k_word;
  logic v_word;
  logic head_done;
  assign q_word    = good && state_q == StQ;
  assign k_word    = good && state_q == StK;
  assign v_word    = good && state_q == StV;
  assign head_done = v_word && word_last && row_last;

  // ---------------------------------------------------------------- state
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q      <= StHeader;
      run_q        <= 1'b0;
      index_q      <= '0;
      inside_q     <= 1'b0;
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
            StHeader: state_q <= StQ;
            StQ:      state_q <= word_last ? StK : StQ;
            StK:      state_q <= word_last && row_last ? StV : StK;
            StV:      state_q <= word_last && row_last ? StHeader : StV;
            default:  state_q <= StError;
          endcase
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (accept) begin
      if (state_q == StHeader) begin
        m_q      <= s_axis_tdata_i[48:32];
        length_q <= header_length[RowWidth-1:0];
        rows_q   <= header_length[RowWidth-1:0];
        word_q   <= '0;
      end else begin
        word_q <= word_last ? '0 : word_q + 1'b1;
        if (word_last && state_q != StQ) begin
          rows_q <= row_last ? length_q : rows_q - 1'b1;
        end
      end
    end
  end

  // ---------------------------------------------------------------- q, and V's delay line
  logic [63:0] q_mem [0:(1<<WordWidth)-1];
  logic [63:0] q_read;

  always_ff @(posedge clk_i) begin
    if (q_word) begin
      q_mem[word_q] <= s_axis_tdata_i;
    end
  end
  assign q_read = q_mem[word_q];

  // A ring in distributed RAM, written every cycle and read Delay cycles later: a delay line in fewer LUTs than shift
  // registers take.
  logic [63:0]      v_ring [0:15];
  logic [3:0]       v_ring_q;  // free-running write address
  logic [3:0]       v_ring_read;
  logic [63:0]      v_data_q;
  // Index s: accepted s + 1 cycles ago.
  logic [Delay-1:0] v_valid_q;
  logic [Delay-1:0] v_word_last_q;
  logic [Delay-1:0] v_row_last_q;

  assign v_ring_read = v_ring_q - 4'(Delay - 1);

  always_ff @(posedge clk_i) begin
    v_ring_q         <= rst_ni ? v_ring_q + 4'd1 : 4'd0;
    v_ring[v_ring_q] <= s_axis_tdata_i;
    v_data_q         <= v_ring[v_ring_read];
    v_word_last_q    <= {v_word_last_q[Delay-2:0], word_last};
    v_row_last_q     <= {v_row_last_q[Delay-2:0], row_last};
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      v_valid_q <= '0;
      v_age_q   <= '0;
    end else begin
      v_valid_q <= {v_valid_q[Delay-2:0], v_word};
      if (v_word) begin
        v_age_q <= 4'(Delay);
      end else if (v_age_q != 4'd0) begin
        v_age_q <= v_age_q - 4'd1;
      end
    end
  end

  logic v_mult;   // a V word meets its probability now
  logic v_fetch;  // its score is read now, Lookup cycles earlier
  assign v_mult  = v_valid_q[Delay-1];
  assign v_fetch = v_valid_q[Delay-1-Lookup];

  // ---------------------------------------------------------------- multipliers: q * k, or p * v
  logic [ProbBits-1:0]  prob_q;
  logic [1:0]           mul_valid_q;  // something is in these stages; DSPs behind idle cycles keep still
  logic [191:0]         product;      // 24 bits a lane

  always_ff @(posedge clk_i) begin
    mul_valid_q <= rst_ni ? {mul_valid_q[0], v_mult || k_word} : 2'd0;
  end

  for (genvar i = 0; i < 8; i++) begin : gen_mul
    // Signals of their own, not elements of an array: Verilator runs arrays of registers at half the speed.
    logic signed [15:0] a_q;
    logic signed [7:0]  b_q;
    logic signed [23:0] raw_q;
    logic signed [23:0] p_q;
    always_ff @(posedge clk_i) begin
      if (v_mult || k_word) begin
        a_q <= v_mult ? {{(16-ProbBits){1'b0}}, prob_q} : {{8{q_read[8*i+7]}}, q_read[8*i +: 8]};
        b_q <= v_mult ? v_data_q[8*i +: 8] : s_axis_tdata_i[8*i +: 8];
      end
      if (mul_valid_q[0]) begin
        raw_q <= a_q * b_q;
      end
      if (mul_valid_q[1]) begin
        p_q <= raw_q;
      end
    end
    assign product[24*i +: 24] = p_q;
  end

  // ---------------------------------------------------------------- scores
  // Index s: the K word was accepted s + 1 cycles ago. Stage 3 adds, stage 4 accumulates, stages 5 to 7 multiply by m.
  localparam int KStages = 8;
  logic [KStages-1:0] k_valid_q;  // from stage 4 on: a whole row's sum
  logic [3:0]         k_first_q;  // first word of a row
  logic [3:0]         k_last_q;   // last word of a row
  logic [KStages-1:0] k_end_q;    // last row of the head

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      k_valid_q <= '0;
    end else begin
      k_valid_q <= {k_valid_q[KStages-2:4], k_valid_q[3] && k_last_q[3], k_valid_q[2:0], k_word};
    end
  end

  always_ff @(posedge clk_i) begin
    k_first_q <= {k_first_q[2:0], word_q == '0};
    k_last_q  <= {k_last_q[2:0], word_last};
    k_end_q   <= {k_end_q[KStages-2:0], row_last};
  end

  assign scoring = k_valid_q != '0;

  // |q * k| <= 16384, so 16 bits signed hold each product.
  for (genvar i = 0; i < 2; i++) begin : gen_half
    logic signed [17:0] sum_q;
    always_ff @(posedge clk_i) begin
      if (k_valid_q[2]) begin
        sum_q <= (18'($signed(product[96*i +: 16])) + 18'($signed(product[96*i+24 +: 16])))
               + (18'($signed(product[96*i+48 +: 16])) + 18'($signed(product[96*i+72 +: 16])));
      end
    end
  end

  logic signed [ScoreWidth-1:0]  dot_q;
  logic signed [ScoreWidth-1:0]  scale_a_q;
  logic signed [17:0]            scale_b_q;
  logic signed [ScoreWidth+17:0] scale_m_q;
  logic signed [ScoreWidth+17:0] scale_p_q;

  always_ff @(posedge clk_i) begin
    if (k_valid_q[3]) begin
      dot_q <= (k_first_q[3] ? '0 : dot_q) + ScoreWidth'(gen_half[0].sum_q) + ScoreWidth'(gen_half[1].sum_q);
    end
    scale_a_q <= dot_q;
    scale_b_q <= {1'b0, m_q};
    scale_m_q <= scale_a_q * scale_b_q;
    scale_p_q <= scale_m_q;
  end

  // The shift is arithmetic: it rounds towards minus infinity.
  logic signed [ZWidth-1:0] z;
  assign z = scale_p_q[tritforge_pkg::SCORE_SHIFT +: ZWidth];

  logic unused_fraction;
  assign unused_fraction = &{1'b0, scale_p_q};

  (* ram_style = "block" *) logic [ZWidth-1:0] z_mem [0:(1<<AddrWidth)-1];
  logic [AddrWidth-1:0]     z_write_q;
  logic signed [ZWidth-1:0] z_max_q;
  logic [AddrWidth-1:0]     z_read_row_q;
  logic signed [ZWidth-1:0] z_read_q;
  logic                     z_valid;
  assign z_valid = k_valid_q[KStages-1];

  always_ff @(posedge clk_i) begin
    if (z_valid) begin
      z_mem[z_write_q] <= z;
    end
    z_read_q <= z_mem[z_read_row_q];
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      z_write_q    <= '0;
      z_read_row_q <= '0;
    end else begin
      if (z_valid) begin
        z_write_q <= k_end_q[KStages-1] ? '0 : z_write_q + 1'b1;
      end
      if (v_fetch && v_word_last_q[Delay-1-Lookup]) begin
        z_read_row_q <= v_row_last_q[Delay-1-Lookup] ? '0 : z_read_row_q + 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (z_valid && (z_write_q == '0 || z > z_max_q)) begin
      z_max_q <= z;
    end
  end

  // ---------------------------------------------------------------- probabilities
  logic [ZWidth:0]      distance_q;
  logic [ProbBits-1:0]  table_value;

  logic [ProbBits-1:0]  exp_rom [0:tritforge_pkg::EXP_TABLE_ENTRIES-1];

  if (ProbBits == 15) begin : gen_rom_15
    initial begin
      for (int unsigned d = 0; d < tritforge_pkg::EXP_TABLE_ENTRIES; d++) begin
        exp_rom[d] = tritforge_pkg::exp_15(d[7:0]);
      end
    end
  end else begin : gen_rom_13
    initial begin
      for (int unsigned d = 0; d < tritforge_pkg::EXP_TABLE_ENTRIES; d++) begin
        exp_rom[d] = tritforge_pkg::exp_13(d[7:0]);
      end
    end
  end
  assign table_value = exp_rom[distance_q[7:0]];

  always_ff @(posedge clk_i) begin
    // Never negative: the maximum is over these scores.
    distance_q <= {z_max_q[ZWidth-1], z_max_q} - {z_read_q[ZWidth-1], z_read_q};
    prob_q     <= distance_q[ZWidth:8] == '0 ? table_value : '0;
  end

  // ---------------------------------------------------------------- sums of p * V and of p
  // Index s: the V word met its probability s + 1 cycles ago; stage 2 has the product.
  logic [2:0]           a_valid_q;
  logic [2:0]           a_end_q;    // the head's last V word
  logic [2:0]           a_start_q;  // of the head's first row: the sums start here
  logic [WordWidth-1:0] a_word_q;
  logic                 first_row_q;
  logic [SumWidth-1:0]  denominator_q;
  logic                 row_start_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      a_valid_q   <= '0;
      first_row_q <= 1'b1;
      row_start_q <= 1'b1;
      a_word_q    <= '0;
    end else begin
      a_valid_q <= {a_valid_q[1:0], v_mult};
      if (v_mult) begin
        row_start_q <= v_word_last_q[Delay-1];
        if (v_word_last_q[Delay-1]) begin
          first_row_q <= v_row_last_q[Delay-1];
        end
      end
      if (a_valid_q[2]) begin
        a_word_q <= a_word_q == WordWidth'(Words - 1) ? '0 : a_word_q + 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    a_end_q   <= {a_end_q[1:0], v_word_last_q[Delay-1] && v_row_last_q[Delay-1]};
    a_start_q <= {a_start_q[1:0], first_row_q};
    if (v_mult && row_start_q) begin
      denominator_q <= (first_row_q ? '0 : denominator_q) + SumWidth'(prob_q);
    end
  end

  // Read and written in one cycle, so that a row may be as short as one word.
  logic [255:0]         acc_mem [0:(1<<WordWidth)-1];
  logic [255:0]         acc_read;
  logic [255:0]         acc_next;
  logic [WordWidth-1:0] acc_addr;
  logic [WordWidth-1:0] drain_word_q;

  assign acc_addr = a_valid_q[2] ? a_word_q : drain_word_q;
  assign acc_read = acc_mem[acc_addr];

  always_comb begin
    acc_next = '0;
    for (int unsigned i = 0; i < 8; i++) begin
      acc_next[32*i +: 32] = (a_start_q[2] ? 32'd0 : acc_read[32*i +: 32]) + 32'($signed(product[24*i +: 24]));
    end
  end

  always_ff @(posedge clk_i) begin
    if (a_valid_q[2]) begin
      acc_mem[acc_addr] <= acc_next;
    end
  end

  // ---------------------------------------------------------------- results
  // Four beats a word of accumulators, then the denominator.
  logic        sending_q;      // all sums are final
  logic        transfer_end_q; // the head that drains is its transfer's last
  logic [1:0]  drain_beat_q;
  logic        drain_sum_q;    // the denominator's beat
  logic        load;
  logic        valid_q;
  logic        last_q;
  logic [63:0] out_q;

  assign load       = sending_q && (!valid_q || m_axis_tready_i);
  assign drain_done = load && drain_sum_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      draining_q   <= 1'b0;
      sending_q    <= 1'b0;
      valid_q      <= 1'b0;
      drain_word_q <= '0;
      drain_beat_q <= '0;
      drain_sum_q  <= 1'b0;
    end else begin
      if (head_done) begin
        draining_q <= 1'b1;
      end else if (drain_done) begin
        draining_q <= 1'b0;
      end
      if (a_valid_q[2] && a_end_q[2]) begin
        sending_q <= 1'b1;
      end else if (drain_done) begin
        sending_q <= 1'b0;
      end
      if (load) begin
        valid_q <= 1'b1;
        if (drain_sum_q) begin
          drain_sum_q <= 1'b0;
        end else begin
          drain_beat_q <= drain_beat_q + 2'd1;
          if (drain_beat_q == 2'd3) begin
            drain_sum_q  <= drain_word_q == WordWidth'(Words - 1);
            drain_word_q <= drain_word_q == WordWidth'(Words - 1) ? '0 : drain_word_q + 1'b1;
          end
        end
      end else if (m_axis_tready_i) begin
        valid_q <= 1'b0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (head_done) begin
      transfer_end_q <= s_axis_tlast_i;
    end
    if (load) begin
      out_q  <= drain_sum_q ? {{(64-SumWidth){1'b0}}, denominator_q} : acc_read[64*drain_beat_q +: 64];
      last_q <= drain_sum_q && transfer_end_q;
    end
  end

  assign m_axis_tvalid_o = valid_q;
  assign m_axis_tdata_o  = out_q;
  assign m_axis_tlast_o  = last_q;

  // ---------------------------------------------------------------- events
  assign word_in_o    = accept;
  assign word_out_o   = m_axis_tvalid_o && m_axis_tready_i;
  assign transfer_o   = accept && s_axis_tlast_i;
  assign stall_in_o   = inside_q && s_axis_tready_o && !s_axis_tvalid_i;
  assign stall_out_o  = run_q && s_axis_tvalid_i && !s_axis_tready_o && state_q == StV;
  assign stall_turn_o = run_q && s_axis_tvalid_i && !s_axis_tready_o && state_q != StV;

`ifdef TRITFORGE_SVA
  a_valid_stays : assert property (@(posedge clk_i) disable iff (!rst_ni)
    m_axis_tvalid_o && !m_axis_tready_i |=> m_axis_tvalid_o);
  a_data_stays : assert property (@(posedge clk_i) disable iff (!rst_ni)
    m_axis_tvalid_o && !m_axis_tready_i |=> $stable(out_q) && $stable(last_q));
  a_one_error : assert property (@(posedge clk_i) disable iff (!rst_ni)
    $onehot0(errors_o));
  a_error_sticks : assert property (@(posedge clk_i) disable iff (!rst_ni)
    errors_o != '0 |=> $stable(errors_o) && $stable(error_word_o));
  // The multipliers never have both passes at once.
  a_one_pass : assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(v_mult && k_word));
  // The maximum is final when the first score is compared with it.
  a_maximum_final : assert property (@(posedge clk_i) disable iff (!rst_ni)
    (v_fetch || v_valid_q[Delay-Lookup]) |-> !scoring);
  a_distance_not_negative : assert property (@(posedge clk_i) disable iff (!rst_ni)
    v_valid_q[Delay-2] |-> !distance_q[ZWidth]);
  // Nothing that the narrower score drops differs from its sign.
  a_score_fits : assert property (@(posedge clk_i) disable iff (!rst_ni)
    z_valid |-> scale_p_q[ScoreWidth+17 -: 18-tritforge_pkg::SCORE_SHIFT+ScoreWidth-ZWidth]
                == {(18-tritforge_pkg::SCORE_SHIFT+ScoreWidth-ZWidth){z[ZWidth-1]}});
  logic product_fits;
  always_comb begin
    product_fits = 1'b1;
    for (int unsigned i = 0; i < 8; i++) begin
      product_fits = product_fits && $signed(product[24*i +: 24]) <= 24'sd16384
                  && $signed(product[24*i +: 24]) >= -24'sd16384;
    end
  end
  a_product_fits : assert property (@(posedge clk_i) disable iff (!rst_ni)
    k_valid_q[2] |-> product_fits);
  // Sending and adding never meet at the accumulators.
  a_drain_alone : assert property (@(posedge clk_i) disable iff (!rst_ni)
    !(sending_q && a_valid_q[2]));
`endif

endmodule
