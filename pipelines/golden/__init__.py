"""The one definition of what circuits and runtime compute.

``formats`` (stream words, image files, registers), ``float32`` (element-wise arithmetic), ``ternary`` (trits),
``attention`` (integer softmax), ``rope`` (rotation tables), ``forward`` (a token), ``sampling`` (the next token),
``codegen`` (the C and SystemVerilog headers made from these).
"""
