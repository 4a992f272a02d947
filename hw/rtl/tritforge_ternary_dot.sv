// Sum over a row of trit * x, Lanes products a cycle, without a multiplier.
//
// A negative product is formed as ~x and the missing one is added by a carry input: Lanes - 1 adders of the tree and
// the accumulator have Lanes carry inputs, just enough. Fixed latency, never stalls; batched prefill will put one
// instance per x behind the same decoded trits.
//
//   cycle 0  inputs; products are selected     cycle 2  tree levels 3, 4     cycle 4  accumulator; valid_i, first_i
//   cycle 1  tree levels 1, 2                  cycle 3  tree levels 5, 6     cycle 5  sum_o
module tritforge_ternary_dot #(
  // Products a cycle: 33 to 64 (six levels of adders).
  parameter int unsigned Lanes    = tritforge_pkg::TRITS_PER_WORD,
  // Signed; 4096 products of -1 * -128 are +524,288, one more than 20 bits hold.
  parameter int unsigned AccWidth = 21
) (
  input  logic                clk_i,
  // Bit i: trit i is +1, trit i is -1. Never both.
  input  logic [Lanes-1:0]    positive_i,
  input  logic [Lanes-1:0]    negative_i,
  // Signed bytes, lane 0 in bits 7:0.
  input  logic [8*Lanes-1:0]  x_i,
  // In cycle 4: this word is the row's first, so the accumulator starts from zero.
  input  logic                first_i,
  // In cycle 4: a word is there.
  input  logic                valid_i,
  output logic [AccWidth-1:0] sum_o
);

  // Terms after each level, and the first carry input that each level's adders take.
  localparam int unsigned N1 = (Lanes + 1) / 2;
  localparam int unsigned N2 = (N1 + 1) / 2;
  localparam int unsigned N3 = (N2 + 1) / 2;
  localparam int unsigned N4 = (N3 + 1) / 2;
  localparam int unsigned N5 = (N4 + 1) / 2;
  localparam int unsigned C2 = Lanes / 2;
  localparam int unsigned C3 = C2 + N1 / 2;
  localparam int unsigned C4 = C3 + N2 / 2;
  localparam int unsigned C5 = C4 + N3 / 2;
  localparam int unsigned C6 = C5 + N4 / 2;

  // A wrong number of lanes ends here, at elaboration, for want of this module.
  if (Lanes <= 32 || Lanes > 64) begin : gen_bad_lanes
    tritforge_error_lanes_must_be_33_to_64 u_error ();
  end

  // ---------------------------------------------------------------- selected products
  logic [8*Lanes-1:0] product_q;
  logic [Lanes-1:0]   carry1_q;

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < Lanes; i++) begin
      product_q[8*i +: 8] <= (x_i[8*i +: 8] ^ {8{negative_i[i]}}) & {8{positive_i[i] | negative_i[i]}};
    end
    carry1_q <= negative_i;
  end

  // ---------------------------------------------------------------- tree levels 1 and 2
  // An adder of two terms and a carry: the carry goes in as a bit below the lowest, so that every tool makes one carry
  // chain of it.
  logic [9*N1-1:0]     level1;
  logic [10*N2-1:0]    level2;
  logic [10*N2-1:0]    level2_q;
  logic [Lanes-1:C3]   carry3_q;

  for (genvar i = 0; i < N1; i++) begin : gen_level1
    if (2 * i + 1 < Lanes) begin : gen_add
      logic [9:0] full;
      assign full = {product_q[16*i+7], product_q[16*i +: 8], 1'b1}
                  + {product_q[16*i+15], product_q[16*i+8 +: 8], carry1_q[i]};
      assign level1[9*i +: 9] = full[9:1];
      logic unused_carry;
      assign unused_carry = full[0];
    end else begin : gen_pass
      assign level1[9*i +: 9] = {product_q[16*i+7], product_q[16*i +: 8]};
    end
  end

  for (genvar i = 0; i < N2; i++) begin : gen_level2
    if (2 * i + 1 < N1) begin : gen_add
      logic [10:0] full;
      assign full = {level1[18*i+8], level1[18*i +: 9], 1'b1}
                  + {level1[18*i+17], level1[18*i+9 +: 9], carry1_q[C2+i]};
      assign level2[10*i +: 10] = full[10:1];
      logic unused_carry;
      assign unused_carry = full[0];
    end else begin : gen_pass
      assign level2[10*i +: 10] = {level1[18*i+8], level1[18*i +: 9]};
    end
  end

  always_ff @(posedge clk_i) begin
    level2_q <= level2;
    carry3_q <= carry1_q[Lanes-1:C3];
  end

  // ---------------------------------------------------------------- tree levels 3 and 4
  logic [11*N3-1:0]    level3;
  logic [12*N4-1:0]    level4;
  logic [12*N4-1:0]    level4_q;
  logic [Lanes-1:C5]   carry5_q;

  for (genvar i = 0; i < N3; i++) begin : gen_level3
    if (2 * i + 1 < N2) begin : gen_add
      logic [11:0] full;
      assign full = {level2_q[20*i+9], level2_q[20*i +: 10], 1'b1}
                  + {level2_q[20*i+19], level2_q[20*i+10 +: 10], carry3_q[C3+i]};
      assign level3[11*i +: 11] = full[11:1];
      logic unused_carry;
      assign unused_carry = full[0];
    end else begin : gen_pass
      assign level3[11*i +: 11] = {level2_q[20*i+9], level2_q[20*i +: 10]};
    end
  end

  for (genvar i = 0; i < N4; i++) begin : gen_level4
    if (2 * i + 1 < N3) begin : gen_add
      logic [12:0] full;
      assign full = {level3[22*i+10], level3[22*i +: 11], 1'b1}
                  + {level3[22*i+21], level3[22*i+11 +: 11], carry3_q[C4+i]};
      assign level4[12*i +: 12] = full[12:1];
      logic unused_carry;
      assign unused_carry = full[0];
    end else begin : gen_pass
      assign level4[12*i +: 12] = {level3[22*i+10], level3[22*i +: 11]};
    end
  end

  always_ff @(posedge clk_i) begin
    level4_q <= level4;
    carry5_q <= carry3_q[Lanes-1:C5];
  end

  // ---------------------------------------------------------------- tree levels 5 and 6
  logic [13*N5-1:0]    level5;
  logic [13:0]         level6;
  logic [13:0]         level6_q;
  logic                carry_acc_q;

  for (genvar i = 0; i < N5; i++) begin : gen_level5
    if (2 * i + 1 < N4) begin : gen_add
      logic [13:0] full;
      assign full = {level4_q[24*i+11], level4_q[24*i +: 12], 1'b1}
                  + {level4_q[24*i+23], level4_q[24*i+12 +: 12], carry5_q[C5+i]};
      assign level5[13*i +: 13] = full[13:1];
      logic unused_carry;
      assign unused_carry = full[0];
    end else begin : gen_pass
      assign level5[13*i +: 13] = {level4_q[24*i+11], level4_q[24*i +: 12]};
    end
  end

  logic [14:0] full6;
  assign full6  = {level5[12], level5[12:0], 1'b1} + {level5[25], level5[25:13], carry5_q[C6]};
  assign level6 = full6[14:1];

  always_ff @(posedge clk_i) begin
    level6_q    <= level6;
    carry_acc_q <= carry5_q[Lanes-1];
  end

  // ---------------------------------------------------------------- accumulator
  logic [AccWidth-1:0] acc_q;
  logic [AccWidth:0]   acc_full;

  assign acc_full = {first_i ? {AccWidth{1'b0}} : acc_q, 1'b1}
                  + {{(AccWidth-14){level6_q[13]}}, level6_q, carry_acc_q};

  always_ff @(posedge clk_i) begin
    if (valid_i) begin
      acc_q <= acc_full[AccWidth:1];
    end
  end

  assign sum_o = acc_q;

  logic unused_bits;
  assign unused_bits = &{1'b0, full6[0], acc_full[0]};

endmodule
