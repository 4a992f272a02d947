"""The model family of ``tiny`` in torch, for training only.

Same operations as the golden definition (``pipelines/golden``), differentiable: ternary weights (absmean)
and int8 activations (per token) in the forward pass, the identity in the backward pass (straight-through).
With ``ternary=False`` it is the ordinary fp32 model of the same shape: the twin for the contrast.
"""

# torch is not installed where the product is checked, so its base classes have no types there.
# mypy: disable-error-code="misc"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the network; names as in a Hugging Face ``config.json``."""

    vocab_size: int = 2048
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 4
    num_attention_heads: int = 2
    max_position_embeddings: int = 512
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5


class TernaryProduct(torch.autograd.Function):
    """y = x̂ · Ŵᵀ for several matrices that share x, with x̂ and Ŵ quantised; gradients as if they were not.

    The codes (−128…127 and −1, 0, 1) are exact in bfloat16, so the product may run in it; scales are applied
    in float32 afterwards.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        x_scale = 127.0 / x.abs().amax(-1, keepdim=True).clamp_(min=1e-5)
        x_codes = (x * x_scale).round_().clamp_(-128, 127).to(torch.bfloat16)
        codes, steps = [], []
        for weight in weights:
            scale = 1.0 / weight.abs().mean().clamp_(min=1e-5)
            codes.append((weight * scale).round_().clamp_(-1, 1))
            steps.append((1.0 / scale).expand(weight.shape[0]))
        w_codes = torch.cat(codes).to(torch.bfloat16)
        w_step = torch.cat(steps)
        ctx.save_for_backward(x_codes, w_codes, x_scale, w_step)
        ctx.rows = [weight.shape[0] for weight in weights]
        return (x_codes @ w_codes.T).float() * (w_step / x_scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x_codes, w_codes, x_scale, w_step = ctx.saved_tensors
        scaled = (grads[0] * w_step).to(torch.bfloat16)
        grad_x = (scaled @ w_codes).float()
        unscaled = (grads[0] / x_scale).to(torch.bfloat16)
        grad_w = (unscaled.flatten(0, -2).T @ x_codes.flatten(0, -2)).float()
        return (grad_x, *grad_w.split(ctx.rows))


class Product(nn.Module):
    """Matrices that share an input, ternary or plain."""

    def __init__(self, rows: dict[str, int], columns: int, ternary: bool) -> None:
        super().__init__()
        self.ternary = ternary
        self.names = list(rows)
        # A list and not nn.ParameterDict, which sorts its keys: the order is that of the outputs.
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(n, columns)) for n in rows.values())

    def forward(self, x: Tensor) -> list[Tensor]:
        weights = list(self.weights)
        if self.ternary:
            y = TernaryProduct.apply(x, *weights)
        else:
            y = functional.linear(x, torch.cat(weights))
        return list(y.split([w.shape[0] for w in weights], dim=-1))


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rope_tables(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin [length, head_dim/2] of the half-split rotation."""
    frequency = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., length, head_dim]: the pair (i, i + head_dim/2) is turned by the position's angle."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self, shape: Shape, ternary: bool, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        hidden, inner, eps = shape.hidden_size, shape.intermediate_size, shape.rms_norm_eps
        self.heads = shape.num_attention_heads
        self.input_layernorm = Norm(hidden, eps)
        self.qkv = Product({f"self_attn.{name}_proj": hidden for name in "qkv"}, hidden, ternary)
        self.inner_attn_ln = Norm(hidden, eps) if ternary else nn.Identity()
        self.o = Product({"self_attn.o_proj": hidden}, hidden, ternary)
        self.post_attention_layernorm = Norm(hidden, eps)
        self.gate_up = Product({"mlp.gate_proj": inner, "mlp.up_proj": inner}, hidden, ternary)
        self.ffn_layernorm = Norm(inner, eps) if ternary else nn.Identity()
        self.down = Product({"mlp.down_proj": hidden}, inner, ternary)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.input_layernorm(x)))
        attended = functional.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        merged = attended.transpose(1, 2).reshape(batch, length, hidden)
        x = x + self.dropout(self.o(self.inner_attn_ln(merged))[0])
        gate, up = self.gate_up(self.post_attention_layernorm(x))
        return x + self.dropout(self.down(self.ffn_layernorm(functional.silu(gate) * up))[0])


class Network(nn.Module):
    """Token ids [batch, length] -> logits [batch, length, vocab]; the head is the embedding."""

    def __init__(self, shape: Shape, *, ternary: bool, generator: torch.Generator, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape, self.ternary = shape, ternary
        self.embedding = nn.Parameter(torch.empty(shape.vocab_size, shape.hidden_size))
        self.layers = nn.ModuleList(Layer(shape, ternary, dropout) for _ in range(shape.num_hidden_layers))
        self.norm = Norm(shape.hidden_size, shape.rms_norm_eps)
        head_dim = shape.hidden_size // shape.num_attention_heads
        cos, sin = rope_tables(shape.max_position_embeddings, head_dim, shape.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    parameter.normal_(std=0.02, generator=generator)

    def hidden(self, ids: Tensor) -> Tensor:
        x = functional.embedding(ids, self.embedding)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.linear(self.hidden(ids), self.embedding)

    def checkpoint(self) -> dict[str, Tensor]:
        """Parameters under the tensor names of the reference checkpoint."""
        tensors = {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.norm.weight}
        for number, layer in enumerate(self.layers):
            prefix = f"model.layers.{number}."
            for block in (layer.qkv, layer.o, layer.gate_up, layer.down):
                for name, weight in zip(block.names, block.weights, strict=True):
                    tensors[f"{prefix}{name}.weight"] = weight
            tensors[prefix + "input_layernorm.weight"] = layer.input_layernorm.weight
            tensors[prefix + "post_attention_layernorm.weight"] = layer.post_attention_layernorm.weight
            if isinstance(layer.inner_attn_ln, Norm):
                tensors[prefix + "self_attn.inner_attn_ln.weight"] = layer.inner_attn_ln.weight
                tensors[prefix + "mlp.ffn_layernorm.weight"] = layer.ffn_layernorm.weight
        return {name: tensor.detach() for name, tensor in tensors.items()}
