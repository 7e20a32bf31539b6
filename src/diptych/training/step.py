"""One step of Algorithm 1: from a batch of slices to new weights.

Knows the networks, the losses and the optimisers; nothing about files, patients or how long training lasts.

The batch of a step may be larger than memory allows at a time. It is then cut into parts (`micro_batch`), each
process takes its share of them, and gradients are averaged over all parts of all processes. What that means for
each term of the loss:

- squared error, SSIM, focal and latent loss, L_reg: means over images, so the parts' mean is the batch's;
- generalised Dice is a ratio of sums and is taken per part: the part, not the batch, is its unit. Two processes with
  parts of 16 therefore do exactly what one process does with `micro_batch=16`;
- the critic sees the codes of the whole batch at once, in every process alike: they are gathered, and the same m
  inner steps are taken everywhere with the same random numbers;
- the codebooks move once per step, over all parts of all processes;
- batch normalisation (`paper-*`) takes its statistics over a part, not over the batch; a run says so when it begins.

With more than one part the critic must know the codes of all parts before the first gradient; the normal branch of
the encoder then runs once more, without gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm2d, ModuleDict

from diptych.config import Preset, TrainingConfig
from diptych.metrics.label_decoders import LabelDecoders
from diptych.model import Critic, FeatureDecomposingNetwork, ForwardResult
from diptych.model.label_networks import LabelDecoder, label_shares
from diptych.model.losses import critic_loss, label_loss, network_losses, regulariser_loss
from diptych.model.model_folder import layers_in_common
from diptych.runs.checkpoint import optimizer_tensors, restore_optimizer, with_prefix, without_prefix
from diptych.runs.run_length import cosine_rate
from diptych.slices import Batch
from diptych.training.distributed import Workers


class Learner:
    """Network, critic and their optimisers: everything that learns.

    Args:
        preset: network, losses and optimiser settings.
        workers: the processes that share each batch.
        precision: "float32", or "bfloat16" for the network's passes (of use on GPUs only).
        compiled: whether to run encoder and segmentation decoder through `torch.compile`.
    """

    def __init__(self, preset: Preset, workers: Workers, *, precision: str = "float32", compiled: bool = False) -> None:
        self.preset = preset
        self.workers = workers
        training = preset.training
        torch.manual_seed(training.seed)
        self.network = FeatureDecomposingNetwork(preset.model).to(workers.device)
        self.critic = Critic(preset.model).to(workers.device)
        settings: dict[str, Any] = {"betas": training.adam_betas, "weight_decay": training.weight_decay}
        self.readers = _readers(self.network) if preset.losses.label_weight > 0 else None
        learning = [*self.network.parameters(), *(self.readers.parameters() if self.readers else ())]
        self.optimizer = torch.optim.Adam(learning, training.learning_rate, **settings)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), training.critic_learning_rate, **settings)
        self.teacher: FeatureDecomposingNetwork | None = None
        decay = training.average_decay
        self.average = AveragedNetwork(self.network, decay) if decay else None
        if compiled:  # not the image decoder: the images it paints a lesion in are other ones at each step
            self.network.encoder.compile()
            self.network.segmentation_decoder.compile()
        self._autocast = torch.autocast(workers.device.type, torch.bfloat16, enabled=precision == "bfloat16")

    @property
    def part_size(self) -> int:
        """Slices that pass through the network at a time in this process."""
        share = self.preset.training.batch_size // self.workers.count
        return min(self.preset.training.micro_batch or share, share)

    def start_codebooks(self, batches: Iterable[Batch]) -> None:
        """Fit the codebooks to the codes of the first batches, where the config asks for it."""
        self.network.start_codebooks(batch.image.to(self.workers.device) for batch in batches)
        self._follow(0)

    def start_from(self, other: FeatureDecomposingNetwork, readers: LabelDecoders | None = None) -> float:
        """Begin with another network and its label decoders, or the layers in common; return the share it gave."""
        if _same_network(other, self.network):
            self.network.load_state_dict(other.state_dict(), strict=False)  # a gate or further blocks may be new
            share = 1.0
            if self.readers and readers:
                for panel, decoder in readers.decoders.items():
                    self.readers[panel].load_state_dict(decoder.state_dict())
        else:
            taken = layers_in_common(other, self.network)
            self.network.load_state_dict(taken, strict=False)
            share = sum(map(Tensor.numel, taken.values())) / sum(map(Tensor.numel, self.network.state_dict().values()))
        if self.preset.losses.teacher_weight > 0:
            self._listen_to(deepcopy(self.network) if share == 1 else other)
        self._follow(0)
        return share

    def fall_quiet(self, batches: Iterable[Batch]) -> None:
        """Give a network that was trained without one its quiet code."""
        device = self.workers.device
        self.network.fall_quiet((batch.image.to(device), batch.lesion.to(device)) for batch in batches)
        self._follow(0)

    def _listen_to(self, teacher: FeatureDecomposingNetwork) -> None:
        self.teacher = teacher.to(self.workers.device).eval().requires_grad_(False)

    @property
    def judged(self) -> FeatureDecomposingNetwork:
        """The network to judge and to export: the average of the weights where one is kept."""
        return self.average.network if self.average else self.network

    @property
    def judged_readers(self) -> LabelDecoders | None:
        """The label decoders that belong to the network to judge, where some were trained."""
        if self.readers is None:
            return None
        decoders = {panel: reader for panel, reader in self.readers.items() if isinstance(reader, LabelDecoder)}
        return LabelDecoders(self.judged, decoders)

    def bytes_per_image(self, batch: Batch) -> int:
        """Memory that one image's backward pass keeps, measured on a pair in evaluation mode, which changes nothing."""
        pair = next(_cut(batch, 2)).to(self.workers.device)
        sizes: dict[int, int] = {}

        def weigh(tensor: Tensor) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        self.network.eval()
        with torch.autograd.graph.saved_tensors_hooks(weigh, lambda tensor: tensor):
            result = self.network(pair.image, painted=self.preset.losses.paints)
            kept = network_losses(result, pair.image, pair.lesion, config=self.preset.losses)
        del kept
        weights = sum(parameter.untyped_storage().nbytes() for parameter in self.network.parameters())
        return max(sum(sizes.values()) - weights, 1) // len(pair)

    def gradients(self, batch: Batch, step: int) -> dict[str, float]:
        """Train the critic on a batch and leave the network's averaged gradients in place; return the metrics."""
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        parts = [part.to(self.workers.device) for part in _cut(batch, self.part_size)]
        painted = self.preset.losses.paints and step % self.preset.training.paint_every == 0
        first = self._decompose(parts[0], painted=painted) if len(parts) == 1 else None
        metrics = self._train_critic(first, parts, step) if self.preset.losses.distribution_matching else {}
        matching = bool(metrics)
        summed: dict[str, Tensor] = {}
        ids = []
        for part in parts:
            result = first or self._decompose(part, painted=painted)
            share = len(part) / len(batch)
            for name, value in self._backward(part, result, share, matching=matching).items():
                summed[name] = summed.get(name, torch.zeros_like(value)) + share * value.detach()
            ids.append((result.normal.ids, result.abnormal.ids))
        for place, panel in enumerate(("normal", "abnormal")):
            summed[f"{panel}_perplexity"] = self._perplexity(torch.cat([pair[place].flatten() for pair in ids]))
        return {**self._finish_gradients(summed), **metrics}

    def update(self, learning_rate: float, step: int) -> None:
        """Take update number `step` (from 1): Adam on the network, moving averages on the codebooks."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.network.update_codebooks(normal=self.teacher is None)
        self._follow(step)

    def agree_on_statistics(self) -> None:
        """Average the running statistics of batch normalisation, which each process keeps for its own parts."""
        norms = [module for module in self.network.modules() if isinstance(module, BatchNorm2d)]
        self.workers.average([buffer for norm in norms for buffer in norm.buffers() if buffer.is_floating_point()])

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint must hold, by flat name."""
        average = self.average.network.state_dict() if self.average else {}
        readers = self.readers.state_dict() if self.readers else {}
        teacher = self.teacher.encoder.state_dict() if self.teacher else {}
        return {
            **with_prefix("average", average),
            **with_prefix("teacher", teacher),
            **with_prefix("readers", readers),
            **with_prefix("network", self.network.state_dict()),
            **with_prefix("critic", self.critic.state_dict()),
            **with_prefix("optimizer", optimizer_tensors(self.optimizer)),
            **with_prefix("critic_optimizer", optimizer_tensors(self.critic_optimizer)),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from the tensors of a checkpoint."""
        self.network.load_state_dict(without_prefix("network", tensors))
        if self.average:
            self.average.network.load_state_dict(without_prefix("average", tensors))
        if self.preset.losses.teacher_weight > 0:
            self._listen_to(deepcopy(self.network))
            assert self.teacher is not None
            self.teacher.encoder.load_state_dict(without_prefix("teacher", tensors))
        if self.readers:
            self.readers.load_state_dict(without_prefix("readers", tensors))
        self.critic.load_state_dict(without_prefix("critic", tensors))
        restore_optimizer(self.optimizer, without_prefix("optimizer", tensors))
        restore_optimizer(self.critic_optimizer, without_prefix("critic_optimizer", tensors))

    def _follow(self, step: int) -> None:
        if self.average:
            self.average.follow(self.network, step)

    def _decompose(self, part: Batch, *, painted: bool) -> ForwardResult:
        """Encode, quantise, segment, decode with and without the lesion; outputs in single precision."""
        with self._autocast:
            result: ForwardResult = self.network(part.image, part.lesion, painted=painted)
        return ForwardResult(
            normal=result.normal,
            abnormal=result.abnormal,
            lesion_logits=result.lesion_logits.float(),
            anatomy_logits=_single(result.anatomy_logits),
            reconstruction=_single(result.reconstruction),
            healthy_twin=_single(result.healthy_twin),
        )

    def _train_critic(self, first: ForwardResult | None, parts: list[Batch], step: int) -> dict[str, float]:
        """The inner loop of Algorithm 1; empty when the batch lacks healthy or diseased images."""
        codes = torch.cat([self._normal_code(part) for part in parts]) if first is None else first.normal.code.detach()
        codes = self.workers.gather(codes)
        ill = self.workers.gather(torch.cat([part.diseased for part in parts]))
        healthy, diseased = codes[~ill], codes[ill]
        pairs = min(len(healthy), len(diseased))
        if pairs == 0:
            return {}
        config = self.preset.losses
        generator = torch.Generator().manual_seed(_mix(self.preset.training.seed, step))
        self.critic.requires_grad_(True)
        for _ in range(config.critic_steps):
            mixing = torch.rand(pairs, generator=generator).to(codes.device)
            loss = critic_loss(self.critic, healthy, diseased, mixing, config=config)
            self.critic_optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(config.critic_weight * loss)
            self.critic_optimizer.step()
        self.critic.requires_grad_(False)
        with torch.no_grad():
            distance = self.critic(healthy).mean() - self.critic(diseased).mean()
        return {"critic": float(loss.detach()), "wasserstein": float(distance)}

    @torch.no_grad()
    def _normal_code(self, part: Batch) -> Tensor:
        with self._autocast:
            grid = self.network.encoder.normal(self.network.encoder.trunk(part.image))
        quantizer = self.network.normal_quantizer
        return quantizer.lookup(quantizer.nearest(grid.float()))

    def _backward(self, part: Batch, result: ForwardResult, share: float, *, matching: bool) -> dict[str, Tensor]:
        """Add a part's share of the gradient; return the terms of its loss."""
        config = self.preset.losses
        losses = network_losses(
            result,
            part.image if part.clean is None else part.clean,
            part.lesion,
            config=config,
            anatomy=part.anatomy,
            has_anatomy=part.has_anatomy,
            twin=part.twin,
            has_twin=part.has_twin,
        )
        terms = {field.name: getattr(losses, field.name) for field in fields(losses)}
        total = losses.total(config)
        if self.teacher is not None:
            terms["teacher"] = self._off_teacher(part, result)
            total = total + config.teacher_weight * terms["teacher"]
        if self.readers is not None:
            terms["labels"] = self._misread(self.readers, part, result)
            total = total + config.label_weight * terms["labels"]
        if matching and bool(part.diseased.any()):
            terms["regulariser"] = regulariser_loss(self.critic, result.normal.code[part.diseased])
            total = total + config.regulariser_weight * terms["regulariser"]
        torch.autograd.backward(share * total)
        return {"loss": total, **terms}

    def _off_teacher(self, part: Batch, result: ForwardResult) -> Tensor:
        """How far the normal grids are from those that the teacher gives the slices before they were spoilt.

        In units of the teacher's own spread, so that a weight means the same for every model.
        """
        assert self.teacher is not None
        with torch.no_grad(), self._autocast:
            encoder = self.teacher.encoder
            wanted: Tensor = encoder.normal(encoder.trunk(part.image if part.clean is None else part.clean)).float()
        return F.mse_loss(result.normal.encoded, wanted) / wanted.var()

    def _misread(self, readers: ModuleDict, part: Batch, result: ForwardResult) -> Tensor:
        """How far small label maps read out of both codes are from the truth, where it is known."""
        losses = [result.normal.code.new_zeros(())]
        for panel, reader in readers.items():
            assert isinstance(reader, LabelDecoder)
            labels = part.lesion if panel == "abnormal" else part.anatomy
            known = torch.ones_like(part.has_anatomy) if panel == "abnormal" else part.has_anatomy
            if not bool(known.any()):
                continue
            code = getattr(result, panel).code[known]
            logits = reader.read(code.float(), self.network.quantizers[panel].codebook)
            losses.append(label_loss(logits, label_shares(labels[known], classes=logits.shape[1] - 1)))
        return torch.stack(losses).sum()

    def _finish_gradients(self, metrics: dict[str, Tensor]) -> dict[str, float]:
        """Average gradients and metrics over processes, and clip."""
        learning = [one for group in self.optimizer.param_groups for one in group["params"]]
        parameters = [parameter for parameter in learning if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self.workers.average(gradients)
        values = torch.stack(list(metrics.values()))
        self.workers.average([values])
        limit = self.preset.training.clip_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        return {**dict(zip(metrics, values.tolist(), strict=True)), "gradient_norm": float(norm)}

    def _perplexity(self, ids: Tensor) -> Tensor:
        """Number of codes in effective use in this step: the exponential of the entropy of their frequencies."""
        counts = torch.bincount(ids, minlength=self.preset.model.codebook_size).float()
        entropy: Tensor = torch.special.entr(counts / counts.sum()).sum()
        return entropy.exp()


def _cut(batch: Batch, size: int) -> Iterator[Batch]:
    """Consecutive parts of at most `size` slices."""
    tensors = [(field.name, getattr(batch, field.name)) for field in fields(batch)]
    for start in range(0, len(batch), size):
        part: dict[str, Any] = {name: None if t is None else t[start : start + size] for name, t in tensors}
        yield Batch(**part)


def _readers(network: FeatureDecomposingNetwork) -> ModuleDict:
    """A label decoder for each panel that has labels to tell apart."""
    device = network.normal_quantizer.codebook.device
    classes = network.description.panel_classes
    return ModuleDict({p: LabelDecoder(network.config, classes=c) for p, c in classes.items() if c}).to(device)


def _single(images: Tensor | None) -> Tensor | None:
    return None if images is None else images.float()


def _mix(seed: int, step: int) -> int:
    """One seed out of two numbers, so that no two steps share random numbers."""
    return (seed * 1_000_003 + step) % 2**63


class AveragedNetwork:
    """Follows `network` at a distance.

    Weights and codebooks are averaged; everything else (code counts, running statistics) is copied. The decay grows
    from nothing to `decay` over the first updates, so that the start is soon forgotten.
    """

    def __init__(self, network: FeatureDecomposingNetwork, decay: float) -> None:
        self.network = deepcopy(network).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def follow(self, network: FeatureDecomposingNetwork, step: int) -> None:
        """Take in the weights after update number `step`, from 1."""
        decay = min(self.decay, step / (step + 10))
        averaged: dict[str, Tensor] = dict(self.network.named_parameters())
        for name, buffer in self.network.named_buffers():
            if name.endswith(".codebook"):
                averaged[name] = buffer
        for name, value in network.state_dict().items():
            if name in averaged:
                averaged[name].lerp_(value, 1 - decay)
            else:
                self.network.get_buffer(name).copy_(value)


def learning_rate(step: int, planned: int | None, config: TrainingConfig) -> float:
    """Size of update number `step` (from 1): a linear rise, then half a cosine down to `final_fraction`, or none.

    >>> config = TrainingConfig(learning_rate=1.0, warmup_steps=10, final_fraction=0.0)
    >>> learning_rate(5, 110, config), round(learning_rate(60, 110, config), 6), learning_rate(110, 110, config)
    (0.5, 0.5, 0.0)
    """
    floor = 1.0 if config.schedule == "constant" else config.final_fraction
    return cosine_rate(step, planned, peak=config.learning_rate, warmup=config.warmup_steps, floor=floor)


def _same_network(one: FeatureDecomposingNetwork, other: FeatureDecomposingNetwork) -> bool:
    """Whether all weights of one mean the same in the other: shape, channels and classes; not how files are read, nor
    what a network was or will be shown."""
    plain: dict[str, Any] = {"description": None, "quiet_code": False, "sufficient_channels": (), "deeper": 0}
    shapes = [replace(network.config, **plain) for network in (one, other)]
    names = [(network.description.channels, network.description.lesion) for network in (one, other)]
    return one.config.deeper <= other.config.deeper and shapes[0] == shapes[1] and names[0] == names[1]
