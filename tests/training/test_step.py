"""One step does what Algorithm 1 says, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from diptych.config import Preset, get_preset
from diptych.model import Critic, FeatureDecomposingNetwork
from diptych.model.losses import critic_loss, network_losses, regulariser_loss
from diptych.slices import Batch
from diptych.training.distributed import Workers
from diptych.training.step import Learner
from diptych.training.training_options import override
from tests.training.tiny import SETTINGS

ALONE = Workers(rank=0, count=1, device=torch.device("cpu"))


def tiny_preset(*changes: str) -> Preset:
    return override(get_preset("cpu-8x8"), [*SETTINGS, *changes])


def make_batch(count: int = 8, *, ill_every: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(3)
    ill = torch.arange(count) % ill_every == 1
    lesion = torch.zeros(count, 48, 32, dtype=torch.int64)
    lesion[:, 10:20, 12:20] = torch.randint(4, (count, 10, 8), generator=generator)
    return Batch(
        image=torch.randn(count, 4, 48, 32, generator=generator),
        lesion=lesion * ill[:, None, None],
        anatomy=torch.randint(7, (count, 48, 32), generator=generator),
        has_anatomy=torch.ones(count, dtype=torch.bool),
        diseased=ill,
        position=torch.rand(count, generator=generator),
        pixel_spacing=torch.ones(count, 2),
        index=torch.arange(count),
        has_twin=torch.zeros(count, dtype=torch.bool),
    )


def make_learner(*changes: str) -> Learner:
    learner = Learner(tiny_preset(*changes), ALONE)
    learner.start_codebooks([make_batch(16)])
    return learner


def copies(parameters: Callable[[], object]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters()]  # type: ignore[attr-defined]


def test_same_gradients_as_a_plain_reading_of_the_algorithm() -> None:
    learner, batch = make_learner("clip_norm=0"), make_batch()
    config = learner.preset.losses
    network, critic = FeatureDecomposingNetwork(learner.preset.model), Critic(learner.preset.model)
    network.load_state_dict(learner.network.state_dict())
    critic.load_state_dict(learner.critic.state_dict())

    metrics = learner.gradients(batch, step=5)

    result = network(batch.image)
    healthy, diseased = result.normal.code[~batch.diseased], result.normal.code[batch.diseased]
    adam = torch.optim.Adam(critic.parameters(), 1e-3, weight_decay=1e-5)
    generator = torch.Generator().manual_seed(5)
    for _ in range(config.critic_steps):
        mixing = torch.rand(4, generator=generator)
        adam.zero_grad()
        torch.autograd.backward(critic_loss(critic, healthy, diseased, mixing, config=config))
        adam.step()
    losses = network_losses(result, batch.image, batch.lesion, config=config, anatomy=batch.anatomy)
    total = losses.total(config) + config.regulariser_weight * regulariser_loss(critic, diseased)
    torch.autograd.backward(total)

    assert metrics["loss"] == pytest.approx(total.item(), rel=1e-6)
    for ours, plain in zip(learner.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-4, atol=1e-6)


def test_parts_give_the_mean_of_their_gradients() -> None:
    changes = ("clip_norm=0", "regulariser_weight=0")
    whole, batch = make_learner(*changes, "micro_batch=4"), make_batch()
    whole.gradients(batch, step=0)
    halves = [make_learner(*changes, "batch_size=4") for _ in range(2)]
    for half, part in zip(halves, (slice(0, 4), slice(4, 8)), strict=True):
        image, lesion, anatomy = (tensor[part] for tensor in (batch.image, batch.lesion, batch.anatomy))
        half.gradients(replace(make_batch(4), image=image, lesion=lesion, anatomy=anatomy), step=0)
    for ours, first, second in zip(*(x.network.parameters() for x in (whole, *halves)), strict=True):
        torch.testing.assert_close(ours.grad, (first.grad + second.grad) / 2, rtol=1e-4, atol=1e-6)


def test_critic_sees_the_whole_batch_however_it_is_cut() -> None:
    whole, parts = make_learner(), make_learner("micro_batch=2")
    metrics = [learner.gradients(make_batch(), step=1) for learner in (whole, parts)]
    assert metrics[0]["critic"] == pytest.approx(metrics[1]["critic"], rel=1e-4)
    for one, other in zip(whole.critic.parameters(), parts.critic.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_codebooks_move_once_per_step_over_all_parts() -> None:
    whole, parts = make_learner(), make_learner("micro_batch=2")
    for learner in (whole, parts):
        learner.gradients(make_batch(), step=0)
        learner.update(0.0, 1)
    assert int(parts.network.normal_quantizer.updates) == 1
    torch.testing.assert_close(parts.network.normal_quantizer.codebook, whole.network.normal_quantizer.codebook)


def test_weights_stay_until_the_update() -> None:
    learner = make_learner()
    before = copies(learner.network.parameters)
    learner.gradients(make_batch(), step=0)
    assert all(map(torch.equal, before, learner.network.parameters()))
    learner.update(1e-3, 1)
    assert not all(map(torch.equal, before, learner.network.parameters()))


@pytest.mark.parametrize("ill_every", [1, 99])
def test_batch_of_one_kind_skips_the_critic(ill_every: int) -> None:
    learner = make_learner()
    before = copies(learner.critic.parameters)
    batch = make_batch(ill_every=2)
    only = replace(batch, diseased=torch.full_like(batch.diseased, ill_every == 1))
    metrics = learner.gradients(only, step=0)
    assert {"critic", "wasserstein", "regulariser"}.isdisjoint(metrics)
    assert all(map(torch.equal, before, learner.critic.parameters()))


def test_without_matching_there_is_no_critic_step() -> None:
    learner = make_learner("regulariser_weight=0")
    assert "critic" not in learner.gradients(make_batch(), step=0)


def test_gradient_norm_is_clipped() -> None:
    learner = make_learner("clip_norm=0.5")
    assert learner.gradients(make_batch(), step=0)["gradient_norm"] > 0.5
    squares = [p.grad.square().sum() for p in learner.network.parameters() if p.grad is not None]
    assert torch.stack(squares).sum().sqrt() == pytest.approx(0.5, rel=1e-4)


def test_bfloat16_stays_near_float32() -> None:
    exact, rough = (Learner(tiny_preset(), ALONE, precision=p) for p in ("float32", "bfloat16"))
    for learner in (exact, rough):
        learner.start_codebooks([make_batch(16)])
    losses = [learner.gradients(make_batch(), step=0)["reconstruction"] for learner in (exact, rough)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_memory_of_an_image_grows_with_its_network() -> None:
    narrow, wide = make_learner(), make_learner("widths=16,16,16,16")
    sizes = [learner.bytes_per_image(make_batch()) for learner in (narrow, wide)]
    assert 1.5 < sizes[1] / sizes[0] < 2.5


def test_restored_learner_goes_on_alike() -> None:
    first, second = make_learner(), make_learner()
    first.gradients(make_batch(), step=0)
    first.update(1e-3, 1)
    second.restore({name: tensor.clone() for name, tensor in first.tensors().items()})
    for learner in (first, second):
        learner.gradients(make_batch(), step=1)
        learner.update(1e-3, 2)
    assert all(tensor.equal(second.tensors()[name]) for name, tensor in first.tensors().items())


def test_adaptation_holds_the_normal_panel_and_leaves_the_image_decoder_alone() -> None:
    changes = ["quiet_code=true", "quiet_weight=1", "teacher_weight=5", "regulariser_weight=0"]
    unpainted = [f"{name}_weight=0" for name in ("reconstruction", "anatomy", "twin")]
    learner = Learner(tiny_preset(*changes, *unpainted), ALONE)
    start = FeatureDecomposingNetwork(replace(learner.network.config, quiet_code=False))
    assert learner.start_from(start) == 1.0
    learner.fall_quiet([make_batch(16)])
    quiet = learner.network.abnormal_quantizer.codebook[0].clone()
    metrics = learner.gradients(make_batch(), 0)
    learner.update(1e-3, 1)
    assert metrics["teacher"] < 1e-9
    assert metrics["reconstruction"] == 0
    assert torch.equal(learner.network.normal_quantizer.codebook, start.normal_quantizer.codebook)
    assert torch.equal(learner.network.abnormal_quantizer.codebook[0], quiet)
    for name, weight in start.image_decoder.state_dict().items():
        assert torch.equal(learner.network.image_decoder.state_dict()[name], weight)
    again = Learner(tiny_preset(*changes, *unpainted), ALONE)
    again.restore(learner.tensors())
    assert again.gradients(make_batch(), 1) == learner.gradients(make_batch(), 1)


def test_only_some_updates_paint() -> None:
    learner = make_learner("paint_every=2", "regulariser_weight=0")
    assert learner.gradients(make_batch(), step=0)["reconstruction"] > 0
    assert learner.gradients(make_batch(), step=1)["reconstruction"] == 0
    assert learner.network.image_decoder.out.weight.grad is None
    assert learner.network.encoder.trunk[0].weight.grad is not None


def test_label_maps_teach_both_codes_and_their_readers() -> None:
    unpainted = [f"{name}_weight=0" for name in ("reconstruction", "anatomy", "twin", "regulariser", "segmentation")]
    learner, batch = make_learner("label_weight=1", *unpainted), make_batch()
    first = learner.gradients(batch, step=0)["labels"]
    for branch in (learner.network.encoder.normal, learner.network.encoder.abnormal):
        assert any(weight.grad is not None and bool(weight.grad.any()) for weight in branch.parameters())
    for step in range(1, 30):
        learner.update(3e-3, step)
        last = learner.gradients(batch, step=step)["labels"]
    assert last < 0.9 * first
    unknown = replace(batch, has_anatomy=torch.zeros_like(batch.has_anatomy))
    assert learner.gradients(unknown, step=30)["labels"] < last
    again = Learner(learner.preset, ALONE)
    again.restore(learner.tensors())
    assert again.gradients(batch, 31) == learner.gradients(batch, 31)


def test_a_deeper_network_begins_as_the_one_it_was_given() -> None:
    deeper = Learner(tiny_preset("deeper=2", "teacher_weight=1"), ALONE)
    start = FeatureDecomposingNetwork(replace(deeper.network.config, deeper=0)).eval()
    assert deeper.start_from(start) == 1.0
    images = make_batch().image
    deeper.network.eval()
    assert torch.equal(deeper.network.encode(images).normal, start.encode(images).normal)
    assert Learner(tiny_preset(), ALONE).start_from(deeper.network) < 1  # blocks that it lacks are not dropped unseen
    again = Learner(deeper.preset, ALONE)
    again.restore(deeper.tensors())
    assert again.teacher is not None
