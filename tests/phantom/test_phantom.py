"""One phantom: what every phantom must be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diptych.errors import UsageError
from diptych.phantom import Phantom, PhantomConfig, make_phantom
from diptych.phantom.atlas import Atlas
from diptych.phantom.brain import COARSE_MM, draw_head, frame_points, render_tissue, to_atlas
from diptych.phantom.glioma import Focus, LesionPlan, push_field
from diptych.volumes import CHANNELS
from tests.phantom.conftest import SEED, SMALL
from tests.phantom.test_fields import jacobian

TINY = PhantomConfig(voxel_mm=8.0, samples=1)


def test_the_frame_is_that_of_brats() -> None:
    volume = make_phantom(0, config=TINY).volume
    corner = volume.affine @ np.array([-0.5, -0.5, -0.5, 1.0])
    np.testing.assert_allclose(corner, [0.5, 239.5, -0.5, 1.0])
    assert volume.shape == (30, 30, 20)


def test_the_same_seed_gives_the_same_bits(phantom: Phantom) -> None:
    again = make_phantom(SEED, config=SMALL).volume
    assert phantom.volume.array.tobytes() == again.array.tobytes()


def test_patients_of_a_series_differ() -> None:
    first, second = (make_phantom(0, index=index, config=TINY).volume for index in (0, 1))
    assert not np.array_equal(first.array, second.array)


def test_signals_are_whole_positive_numbers_in_the_brain_and_zero_outside(phantom: Phantom) -> None:
    volume = phantom.volume
    assert np.array_equal(volume.array, np.rint(volume.array))
    assert all(np.array_equal(channel > 0, volume.brain) for channel in volume.array)


def test_labels_are_in_their_sets(phantom: Phantom) -> None:
    assert phantom.volume.lesion is not None
    assert phantom.volume.anatomy is not None
    assert set(np.unique(phantom.volume.lesion)) == {0, 1, 2, 3}
    assert set(np.unique(phantom.volume.anatomy)) == {0, 1, 2, 3, 4, 5, 6}


def test_labels_lie_in_the_brain(phantom: Phantom) -> None:
    volume = phantom.volume
    assert volume.lesion is not None
    assert volume.anatomy is not None
    assert not ((volume.lesion > 0) | (volume.anatomy > 0))[~volume.brain].any()


def test_left_labels_lie_left(phantom: Phantom) -> None:
    anatomy = phantom.volume.anatomy
    assert anatomy is not None
    for left, right in ((1, 2), (3, 4), (5, 6)):
        assert np.nonzero(anatomy == left)[0].mean() > np.nonzero(anatomy == right)[0].mean()


def test_the_twin_differs_only_where_the_lesion_is(phantom: Phantom) -> None:
    volume = phantom.volume
    assert volume.twin is not None
    assert volume.lesion is not None
    changed = np.abs(volume.array - volume.twin).max(axis=0) > 0.15 * volume.array.max()
    assert (volume.lesion[changed] > 0).mean() > 0.9


def test_the_twin_is_the_patient_far_from_the_lesion(phantom: Phantom) -> None:
    from scipy import ndimage

    volume = phantom.volume
    assert volume.twin is not None
    assert volume.lesion is not None
    far = ndimage.distance_transform_edt(volume.lesion == 0) * 4.0 > 45.0
    assert far.any()
    np.testing.assert_array_equal(volume.array[:, far], volume.twin[:, far])


@pytest.mark.parametrize(
    ("channel", "order"),
    [
        ("t1", ("white", "grey", "fluid")),
        ("t1gd", ("white", "grey", "fluid")),
        ("t2", ("fluid", "grey", "white")),
        ("flair", ("grey", "white", "fluid")),
    ],
)
def test_tissues_have_the_order_of_the_sequence(
    phantom: Phantom, atlas: Atlas, channel: str, order: tuple[str, str, str]
) -> None:
    tissue = render_tissue(phantom.head, atlas, None, SMALL)
    image = phantom.before.array[CHANNELS.index(channel)]
    calm = tissue.periventricular < 0.05
    wet = (tissue.fluid > 0.85) & (tissue.anatomy > 4)
    pure = {"white": (tissue.white > 0.9) & calm, "grey": (tissue.grey > 0.85) & calm, "fluid": wet}
    first, second, third = (np.median(image[pure[name]]) for name in order)
    assert first > second > third


def test_enhancing_tumour_is_bright_on_t1gd_only(phantom: Phantom) -> None:
    volume = phantom.volume
    assert volume.lesion is not None
    t1, t1gd = volume.array[:2]
    rim, healthy = volume.lesion == 3, (volume.lesion == 0) & volume.brain
    assert t1gd[rim].mean() > 1.3 * t1gd[healthy].mean()
    assert t1[rim].mean() < 1.1 * t1[healthy].mean()


def test_oedema_is_bright_on_flair_and_in_white_matter(phantom: Phantom, atlas: Atlas) -> None:
    volume = phantom.volume
    assert volume.lesion is not None
    assert volume.twin is not None
    assert isinstance(phantom.plan, LesionPlan)
    oedema = volume.lesion == 2
    assert volume.array[3][oedema].mean() > 1.3 * volume.twin[3][oedema].mean()
    push = push_field(phantom.plan, phantom.head, atlas, SMALL)
    tissue = render_tissue(phantom.head, atlas, push, SMALL)
    assert tissue.white[oedema].mean() > 2.0 * tissue.grey[oedema].mean()


def test_low_grade_tumours_do_not_enhance() -> None:
    volume = make_phantom(1, config=replace(TINY, low_grade=1.0)).volume
    assert volume.lesion is not None
    assert 3 not in np.unique(volume.lesion)


def test_several_foci() -> None:
    plan = make_phantom(1, config=replace(TINY, multifocal=1.0)).plan
    assert isinstance(plan, LesionPlan)
    assert len(plan.foci) in (2, 3)


def test_a_healthy_phantom_is_its_own_twin() -> None:
    phantom = make_phantom(1, config=replace(TINY, healthy=1.0))
    assert phantom.plan is None
    assert phantom.volume.lesion is not None
    assert not phantom.volume.lesion.any()
    np.testing.assert_array_equal(phantom.volume.array, phantom.volume.twin)


def test_the_lesion_has_the_planned_core_volume(phantom: Phantom) -> None:
    assert isinstance(phantom.plan, LesionPlan)
    assert phantom.volume.lesion is not None
    planned = sum(focus.volume_ml for focus in phantom.plan.foci)
    core = np.isin(phantom.volume.lesion, (1, 3)).sum() * 4.0**3 / 1000.0
    assert 0.6 * planned < core < 1.4 * planned


def test_warps_are_invertible(atlas: Atlas) -> None:
    for seed in range(4):
        head = draw_head(np.random.default_rng(seed), atlas, SMALL)
        inner = (slice(None), slice(12, -12), slice(8, -8), slice(8, -8))
        # the image mirrors two axes of the atlas, which leaves the sign of the volume factor as it is
        assert jacobian(to_atlas(head, atlas, frame_points()))[inner[1:]].min() > 0


def test_a_tumour_pushes_its_neighbourhood_away_and_leaves_the_skull(phantom: Phantom, atlas: Atlas) -> None:
    plan = _plan_at((150.0, 135.0, 80.0), volume_ml=40.0)
    push = push_field(plan, phantom.head, atlas, SMALL)
    x, y, z = (round(at / COARSE_MM) for at in (150.0, 135.0, 80.0))
    assert push[0, x - 6, y, z] > 2.0  # towards the midline: tissue there comes from nearer the tumour
    assert np.abs(push[:, 50, y, z]).max() < 1.0
    assert jacobian(frame_points() + push).min() > 0


def test_mass_effect_narrows_the_ventricle_beside_the_tumour(phantom: Phantom, atlas: Atlas) -> None:
    push = push_field(_plan_at((150.0, 135.0, 85.0), volume_ml=40.0), phantom.head, atlas, SMALL)
    before = render_tissue(phantom.head, atlas, None, SMALL).anatomy
    after = render_tissue(phantom.head, atlas, push, SMALL).anatomy
    left, right = ((after == side).sum() / (before == side).sum() for side in (5, 6))
    assert left < 0.8
    assert left < right


def test_before_has_no_lesion_and_another_shape(phantom: Phantom) -> None:
    before = phantom.before
    assert before.lesion is not None
    assert not before.lesion.any()
    assert phantom.volume.twin is not None
    assert not np.array_equal(before.array, phantom.volume.twin)


@pytest.mark.parametrize("wrong", [{"voxel_mm": 0.0}, {"healthy": 1.5}, {"noise": -1.0}, {"samples": 9}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        PhantomConfig(**wrong)  # type: ignore[arg-type]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="seed -1"):
        make_phantom(-1, config=TINY)


def _plan_at(centre: tuple[float, float, float], volume_ml: float) -> LesionPlan:
    return LesionPlan(
        foci=(Focus(centre, volume_ml),),
        low_grade=False,
        oedema_ml=10.0,
        rim_mm=4.0,
        irregularity=0.5,
        strands=0.5,
        necrosis=0.5,
        seed=0,
    )
