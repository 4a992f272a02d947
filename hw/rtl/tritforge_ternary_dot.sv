// Sum over a row of trit * x, forty products a cycle, without a multiplier.
//
// A negative product is formed as ~x; the ones that this lacks are counted and added at the end. Products are kept with
// their sign bit inverted (128 too large), so that the tree adds unsigned numbers of a known sum of offsets. Fixed
// latency, never stalls; batched prefill will put one instance per x behind the same decoded trits.
//
//   cycle 0  inputs; products, and their sums in pairs     cycle 4  the word's sum, its offsets taken out
//   cycles 1 to 3  a level of adders each                  cycle 5  accumulator; first_i; sum_o in cycle 6
//
// Each value is a signal of its own, not an element of an array: Verilator runs this half as fast with arrays.
module tritforge_ternary_dot #(
  // Signed; 4096 products of -1 * -128 are +524,288, one more than 20 bits hold.
  parameter int AccWidth = 21,
  localparam int Lanes = tritforge_pkg::TRITS_PER_WORD
) (
  input  logic                clk_i,
  // Bit s: a word is in cycle s. Registers behind idle cycles keep still.
  input  logic [5:0]          valid_i,
  // Bit i: trit i is +1, trit i is -1. Never both.
  input  logic [Lanes-1:0]    positive_i,
  input  logic [Lanes-1:0]    negative_i,
  // Signed bytes, lane 0 in bits 7:0.
  input  logic [8*Lanes-1:0]  x_i,
  // In cycle 5: this word is the row's first, so the accumulator starts from zero.
  input  logic                first_i,
  output logic [AccWidth-1:0] sum_o
);

  // What the inverted sign bits have added to the sum of all lanes; it fits the tree's 14 bits with room to spare.
  localparam logic [14:0] Offset = 15'(128 * Lanes);

  // ---------------------------------------------------------------- products and the tree
  for (genvar i = 0; i < Lanes / 2; i++) begin : gen_two
    logic [7:0] even;
    logic [7:0] odd;
    logic [8:0] sum_q;
    assign even = 8'h80 ^ ((x_i[16*i +: 8]   ^ {8{negative_i[2*i]}})   & {8{positive_i[2*i] | negative_i[2*i]}});
    assign odd  = 8'h80 ^ ((x_i[16*i+8 +: 8] ^ {8{negative_i[2*i+1]}}) & {8{positive_i[2*i+1] | negative_i[2*i+1]}});
    always_ff @(posedge clk_i) begin
      if (valid_i[0]) begin
        sum_q <= 9'(even) + 9'(odd);
      end
    end
  end

  for (genvar i = 0; i < Lanes / 4; i++) begin : gen_four
    logic [9:0] sum_q;
    always_ff @(posedge clk_i) begin
      if (valid_i[1]) begin
        sum_q <= 10'(gen_two[2*i].sum_q) + 10'(gen_two[2*i+1].sum_q);
      end
    end
  end

  for (genvar i = 0; i < Lanes / 8; i++) begin : gen_eight
    logic [10:0] sum_q;
    always_ff @(posedge clk_i) begin
      if (valid_i[2]) begin
        sum_q <= 11'(gen_four[2*i].sum_q) + 11'(gen_four[2*i+1].sum_q);
      end
    end
  end

  // ---------------------------------------------------------------- negative trits of the word
  logic [5:0] count2_q;
  logic [5:0] count3_q;
  logic [2:0] ones_rom [0:31];
  initial begin
    for (int unsigned bits = 0; bits < 32; bits++) begin
      ones_rom[bits] = {2'd0, bits[0]} + {2'd0, bits[1]} + {2'd0, bits[2]} + {2'd0, bits[3]} + {2'd0, bits[4]};
    end
  end

  for (genvar i = 0; i < 4; i++) begin : gen_count
    logic [3:0] sum_q;
    always_ff @(posedge clk_i) begin
      if (valid_i[0]) begin
        sum_q <= 4'(ones_rom[negative_i[10*i +: 5]]) + 4'(ones_rom[negative_i[10*i+5 +: 5]]);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i[1]) begin
      count2_q <= (6'(gen_count[0].sum_q) + 6'(gen_count[1].sum_q)) + (6'(gen_count[2].sum_q) + 6'(gen_count[3].sum_q));
    end
    if (valid_i[2]) begin
      count3_q <= count2_q;
    end
  end

  // ---------------------------------------------------------------- the word, the row
  logic [11:0]         first16_q;
  logic [11:0]         second16_q;
  logic [11:0]         rest_q;
  logic [14:0]         word_q;
  logic [AccWidth-1:0] acc_q;

  always_ff @(posedge clk_i) begin
    if (valid_i[3]) begin
      first16_q  <= 12'(gen_eight[0].sum_q) + 12'(gen_eight[1].sum_q);
      second16_q <= 12'(gen_eight[2].sum_q) + 12'(gen_eight[3].sum_q);
      rest_q     <= 12'(gen_eight[4].sum_q) + 12'(count3_q);
    end
    if (valid_i[4]) begin
      word_q <= (15'(first16_q) + 15'(second16_q)) + (15'(rest_q) - Offset);
    end
    if (valid_i[5]) begin
      acc_q <= (first_i ? '0 : acc_q) + {{(AccWidth-15){word_q[14]}}, word_q};
    end
  end

  assign sum_o = acc_q;

endmodule
