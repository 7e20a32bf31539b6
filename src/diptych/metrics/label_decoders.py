"""`LabelDecoders`: a model's label decoders, one per panel, and the file that keeps them beside the model.

`MODEL/label-decoders.safetensors` holds them in half precision. It belongs to exactly one model and is no part of its
fingerprint, so archives stay valid. Fitting them is `diptych.fitting.label_fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from diptych.errors import ModelError
from diptych.metrics.model_file import Companion

if TYPE_CHECKING:
    from torch import Tensor

    from diptych.model import FeatureDecomposingNetwork
    from diptych.model.label_networks import LabelDecoder

LABEL_DECODERS = Companion(
    file="label-decoders.safetensors",
    format="diptych-label-decoders",
    version="1",
    called="label decoders",
    command="diptych fit labels STORE --model MODEL",
)


@dataclass(frozen=True, eq=False)
class LabelDecoders:
    """A network with the label decoders that were fitted to it."""

    network: FeatureDecomposingNetwork
    decoders: Mapping[str, LabelDecoder]
    """By panel."""

    @classmethod
    def open(cls, folder: Path | None, network: FeatureDecomposingNetwork) -> LabelDecoders | None:
        """Those in a model's folder, None where there are none; some that were fitted to another model are refused."""
        import torch

        from diptych.model.label_networks import LabelDecoder

        found = None if folder is None else LABEL_DECODERS.read(folder, fingerprint=network.fingerprint)
        if folder is None or found is None:
            return None
        states: dict[str, dict[str, Tensor]] = {}
        for name, array in found[0].items():
            panel, _, rest = name.partition(".")
            states.setdefault(panel, {})[rest] = torch.from_numpy(array).float()
        try:
            classes = network.description.panel_classes
            decoders = {panel: LabelDecoder(network.config, classes=classes[panel]) for panel in states}
            for panel, decoder in decoders.items():
                decoder.load_state_dict(states[panel])
        except (KeyError, RuntimeError):
            file = folder / LABEL_DECODERS.file
            raise ModelError(f"{file}: its tensors do not fit the model; {LABEL_DECODERS.way_out}") from None
        device = network.normal_quantizer.codebook.device
        return cls(network, {panel: decoder.to(device).eval() for panel, decoder in decoders.items()})

    def save(self, folder: Path | str) -> Path:
        """Write them beside their model, whole or not at all."""
        arrays = {
            f"{panel}.{name}": tensor.detach().half().cpu().numpy()
            for panel, decoder in self.decoders.items()
            for name, tensor in decoder.state_dict().items()
        }
        return LABEL_DECODERS.write(Path(folder), arrays, fingerprint=self.network.fingerprint)

    @cached_property
    def version(self) -> str:
        """Tells these decoders from any others; for caches of what they decode."""
        digest = sha256()
        for panel, decoder in sorted(self.decoders.items()):
            digest.update(panel.encode())
            for tensor in decoder.state_dict().values():
                digest.update(np.ascontiguousarray(tensor.half().cpu().numpy()).tobytes())
        return digest.hexdigest()[:16]

    def shares(self, panel: str, ids: Tensor) -> Tensor:
        """Share of each label, background left out, `[n, C, 32, 32]`, that ids `[n, h, w]` stand for."""
        import torch

        with torch.no_grad():
            return self.logits(panel, ids).softmax(dim=1)[:, 1:]

    def logits(self, panel: str, ids: Tensor) -> Tensor:
        """The same before the softmax and with the background."""
        logits: Tensor = self.decoders[panel](ids, self.network.quantizers[panel].codebook)
        return logits
