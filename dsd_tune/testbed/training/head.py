"""The two drafters as vLLM computes them: EAGLE (``llama_eagle.py``) and EAGLE-3 (``llama_eagle3.py``)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsd_tune.testbed.training.layer import Layer, LayerShape, Norm, Unrolled
from dsd_tune.testbed.training.store import AUX_LAYERS


class Eagle(nn.Module):
    """EAGLE: reads the target's final hidden state, predicts the next one, and uses the target's own output layer."""

    shape = LayerShape(intermediate=1536)

    def __init__(self) -> None:
        """Start near the identity on the feature: the next hidden state resembles this one."""
        super().__init__()
        hidden = self.shape.hidden
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([Layer(self.shape, hidden)])
        with torch.no_grad():
            self.fc.weight[:, :hidden].normal_(std=0.3)
            self.fc.weight[:, hidden:].copy_(torch.eye(hidden) * 0.5)
        _quiet_outputs(self)

    @staticmethod
    def columns(hidden: int) -> slice:
        """Return the columns of the corpus that hold this drafter's features."""
        return slice(0, hidden)

    def feature(self, stored: Tensor) -> Tensor:
        """Return the feature made of the corpus' columns: here the same."""
        return stored

    def forward(self, embeds: Tensor, feature: Tensor, queries: int, past: Unrolled) -> tuple[Tensor, Tensor]:
        """Return what the output layer reads and the next step's feature, for the last ``queries`` positions."""
        inputs = self.fc(torch.cat([embeds, feature], dim=-1))
        hidden = self.layers[0](inputs, inputs[:, -queries:], past)
        return hidden, hidden


class _Eagle3Layer(Layer):
    def __init__(self, shape: LayerShape, inputs: int) -> None:
        super().__init__(shape, inputs)
        self.input_layernorm = Norm(shape)
        self.hidden_norm = Norm(shape)


class Eagle3(nn.Module):
    """EAGLE-3: reads three inner layers of the target and has its own output layer over a smaller vocabulary."""

    shape = LayerShape(intermediate=1280)

    def __init__(self, output: Tensor) -> None:
        """Start from ``output``, the target's output rows of the drafter's vocabulary."""
        super().__init__()
        hidden = self.shape.hidden
        self.fc = nn.Linear(len(AUX_LAYERS) * hidden, hidden, bias=False)
        self.fc_norm = nn.ModuleList([Norm(self.shape) for _ in AUX_LAYERS])
        self.midlayer = _Eagle3Layer(self.shape, 2 * hidden)
        self.norm = Norm(self.shape)
        self.lm_head = nn.Linear(hidden, output.shape[0], bias=False)
        with torch.no_grad():
            self.lm_head.weight.copy_(output)
        _quiet_outputs(self)

    @staticmethod
    def columns(hidden: int) -> slice:
        """Return the columns of the corpus that hold this drafter's features."""
        return slice(hidden, hidden * (1 + len(AUX_LAYERS)))

    def feature(self, stored: Tensor) -> Tensor:
        """Mix the three layers, each normalised, into one feature."""
        chunks = stored.chunk(len(AUX_LAYERS), dim=-1)
        normed = [norm(chunk) for norm, chunk in zip(self.fc_norm, chunks, strict=True)]
        return self.fc(torch.cat(normed, dim=-1))  # type: ignore[no-any-return]

    def forward(self, embeds: Tensor, feature: Tensor, queries: int, past: Unrolled) -> tuple[Tensor, Tensor]:
        """Return what the output layer reads and the next step's feature, for the last ``queries`` positions."""
        layer = self.midlayer
        inputs = torch.cat([layer.input_layernorm(embeds), layer.hidden_norm(feature)], dim=-1)
        hidden = layer(inputs, feature[:, -queries:], past)
        return self.norm(hidden), hidden


def _quiet_outputs(drafter: nn.Module) -> None:
    with torch.no_grad():
        for name, weight in drafter.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(0.3)
