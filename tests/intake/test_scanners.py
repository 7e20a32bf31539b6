"""Series as scanners of four makers describe them: each is told for what it is, whatever its tags leave out.

Tag sets follow what these scanners write (timing at 1.5 and 3 T, ImageType, names of sequences); descriptions are the
kind that people type. `None` means: none of our four sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray

from diptych.intake.series import Series, Tags, agent_given
from diptych.intake.series_typing import choose_series, type_series
from diptych.intake.series_words import agent_by_words

SE, IR, GR, EP, SEIR, GRIR = ("SE",), ("IR",), ("GR",), ("EP", "SE"), ("SE", "IR"), ("GR", "IR")
SIEMENS, GE, PHILIPS = ("ORIGINAL", "PRIMARY", "M", "ND", "NORM"), ("ORIGINAL", "PRIMARY", "OTHER"), ()
SPIN, FIELD = ("ORIGINAL", "PRIMARY", "M_SE", "M", "SE"), ("ORIGINAL", "PRIMARY", "M_FFE", "M", "FFE")
CANON = ("ORIGINAL", "PRIMARY", "OTHER")

# description, ImageType, ScanningSequence, TR, TE, TI, what it is; then whatever else the header says
TABLE: list[tuple[Any, ...]] = [
    # Siemens
    ("t1_mprage_sag_p2_iso", SIEMENS, GRIR, 1900, 2.5, 900, "t1", {"flip_angle": 9, "sequence_variant": ("SP", "MP")}),
    ("t1_mprage_sag_p2_iso_KM", SIEMENS, GRIR, 2300, 2.98, 900, "t1gd", {}),
    ("SAG T1 MPRAGE +C", SIEMENS, GRIR, 2100, 3.4, 1100, "t1gd", {}),
    ("t1_mprage_tra_MPR", ("DERIVED", "PRIMARY", "MPR"), GRIR, 1900, 2.5, 900, "t1gd", {"contrast_agent": True}),
    ("t1_se_tra", SIEMENS, SE, 500, 8.4, None, "t1", {}),
    ("t1_se_tra_post_gd", SIEMENS, SE, 500, 8.4, None, "t1gd", {}),
    ("t1_tse_dark-fluid_tra", SIEMENS, SEIR, 2000, 9, 860, "t1", {}),
    ("t1_fl2d_tra", SIEMENS, GR, 250, 2.5, None, "t1", {"flip_angle": 70}),
    ("t1_vibe_fs_tra_post", SIEMENS, GR, 6.2, 2.3, None, "t1gd", {"flip_angle": 12, "sequence_variant": ("SP", "OSP")}),
    ("t2_tse_tra", SIEMENS, SE, 5000, 99, None, "t2", {"sequence_variant": ("SK", "SP", "OSP")}),
    ("t2_blade_tra_p2", SIEMENS, SE, 4500, 117, None, "t2", {}),
    ("t2_space_sag_p2_iso", SIEMENS, SE, 3200, 409, None, "t2", {"sequence_name": "*spc_282ns"}),
    ("t2_tirm_tra_dark-fluid", SIEMENS, SEIR, 9000, 81, 2500, "flair", {"sequence_name": "*tir2d1_16"}),
    ("t2_space_dark-fluid_sag_p2_iso", SIEMENS, SEIR, 5000, 388, 1800, "flair", {"sequence_name": "*spcir_242ns"}),
    ("Ax FLAIR", SIEMENS, SEIR, 9000, 94, 2400, "flair", {"contrast_agent": True}),
    ("pd+t2_tse_tra", SIEMENS, SE, 3800, 11, None, None, {}),
    ("pd+t2_tse_tra", SIEMENS, SE, 3800, 95, None, "t2", {}),
    ("ep2d_diff_3scan_TRACEW", ("ORIGINAL", "PRIMARY", "DIFFUSION", "TRACEW"), ("EP",), 3600, 89, None, None, {}),
    ("ep2d_diff_3scan_trace_p2_ADC", ("DERIVED", "PRIMARY", "DIFFUSION", "ADC"), ("EP",), 3600, 89, None, None, {}),
    ("ep2d_perf_p2", SIEMENS, ("EP",), 1500, 30, None, None, {}),
    ("t2_swi_tra_p2", SIEMENS, GR, 28, 20, None, None, {}),
    ("Mag_Images", SIEMENS, GR, 28, 20, None, None, {}),
    ("Pha_Images", ("ORIGINAL", "PRIMARY", "P", "ND"), GR, 28, 20, None, None, {}),
    ("mIP_Images(SW)", ("DERIVED", "PRIMARY", "MNIP", "SWI"), GR, 28, 20, None, None, {}),
    ("TOF_3D_multi-slab", SIEMENS, GR, 21, 3.6, None, None, {"flip_angle": 18}),
    ("head vessels", SIEMENS, GR, 21, 3.6, None, None, {"angio": True}),
    ("t2_fl2d_tra_hemo", SIEMENS, GR, 800, 26, None, None, {}),
    ("t2_ci3d_tra_iso (CISS)", SIEMENS, GR, 5.8, 2.6, None, None, {"flip_angle": 50}),
    ("t1_mp2rage_sag_INV2", SIEMENS, GRIR, 5000, 2.9, 2500, None, {}),
    ("t1_mp2rage_sag_T1_Images", ("DERIVED", "PRIMARY", "T1 MAP"), GRIR, 5000, 2.9, None, None, {}),
    ("t1_mp2rage_sag_UNI_Images", ("DERIVED", "PRIMARY", "M", "UNI"), GRIR, 5000, 2.9, 700, "t1", {}),
    ("t2_tirm_cor_fs", SIEMENS, SEIR, 4200, 61, 160, None, {}),
    ("DIR_space_sag", SIEMENS, SEIR, 7500, 318, 3000, None, {}),
    ("gre_field_mapping", SIEMENS, GR, 488, 4.9, None, None, {}),
    ("t1_twist_dynamic", SIEMENS, GR, 2.9, 1.0, None, None, {"contrast_agent": True}),
    # GE: ImageType OTHER everywhere, T1 FLAIR, the protocol names the examination
    ("Sag T1 FLAIR", GE, SEIR, 2600, 24, 1050, "t1", {}),
    ("Ax T1 FLAIR +C", GE, SEIR, 2500, 22, 950, "t1gd", {}),
    ("Ax T2 FLAIR", GE, SEIR, 9500, 125, 2350, "flair", {}),
    ("Ax T2 FLAIR", GE, ("RM",), 9500, 125, None, "flair", {}),
    ("Sag CUBE T2 FLAIR", GE, SEIR, 7600, 118, 2050, "flair", {}),
    ("Ax T2 FRFSE", GE, SE, 4700, 102, None, "t2", {"inversion_time": 0}),
    ("Ax T2 PROPELLER", GE, ("RM",), 5200, 96, None, "t2", {}),
    ("Sag FSPGR BRAVO", GE, GR, 8.2, 3.2, 450, "t1", {"flip_angle": 12, "sequence_variant": ("SS", "SP", "SK")}),
    ("AX BRAVO +C", GE, GR, 8.2, 3.2, 450, "t1gd", {"flip_angle": 12, "sequence_variant": ("SS", "SP", "SK")}),
    ("AX T1 POST", GE, SE, 600, 14, None, "t1gd", {}),
    ("COR T1 POST NON FS", GE, SE, 650, 12, None, "t1gd", {}),
    ("AX T1 PRE", GE, SE, 600, 14, None, "t1", {"contrast_agent": True}),
    ("Ax T1 w/o contrast", GE, SE, 600, 14, None, "t1", {}),
    ("Ax 3D T1 postcontrast", GE, GR, 10, 4.2, 450, "t1gd", {}),
    ("Ax DWI b1000", GE, EP, 8000, 82, None, None, {}),
    ("Apparent Diffusion Coefficient (mm2/s)", ("DERIVED", "SECONDARY", "OTHER"), ("RM",), 8000, 82, None, None, {}),
    ("Ax SWAN", GE, GR, 41, 24, None, None, {}),
    ("Ax T2* GRE", GE, GR, 600, 15, None, None, {}),
    ("Ax FIESTA-C", GE, GR, 5.1, 2.0, None, None, {"flip_angle": 65, "sequence_variant": ("SS", "SK")}),
    ("3D TOF COW", GE, GR, 23, 3.4, None, None, {"flip_angle": 20, "sequence_variant": ("SS", "SP")}),
    ("ASSET CAL", GE, GR, 150, 2.1, None, None, {}),
    ("3-PL LOC", GE, SE, 500, 80, None, None, {}),
    ("Cerebral Blood Flow ASL", ("DERIVED", "PRIMARY", "CBF"), ("RM",), 4800, 10, None, None, {}),
    ("Ax Perfusion DSC", GE, ("EP", "GR"), 2000, 30, None, None, {}),
    ("COR T2 STIR", GE, SEIR, 4800, 62, 165, None, {}),
    ("SUB T1 POST-PRE", ("DERIVED", "SECONDARY", "SUBTRACTION"), SE, 600, 14, None, None, {}),
    # Philips: inversion time often missing, two sequences in one name
    ("sT1W_3D_TFE", FIELD, GR, 8.1, 3.7, None, "t1", {"flip_angle": 8, "sequence_variant": ("MP",)}),
    ("sT1W_3D_TFE_GD SENSE", FIELD, GR, 8.1, 3.7, None, "t1gd", {"flip_angle": 8}),
    ("T1W_SE", SPIN, SE, 590, 15, None, "t1", {}),
    ("T1W_SE C+", SPIN, SE, 590, 15, None, "t1gd", {}),
    ("T1W_IR_TSE", SPIN, IR, 2000, 20, None, "t1", {}),
    ("T2W_TSE", SPIN, SE, 3000, 80, None, "t2", {"b_value": 0.0}),
    ("sT2W/FLAIR", SPIN, SE, 4431, 100, None, "t2", {}),
    ("sT2W/FLAIR", SPIN, SEIR, 8000, 120, 2500, "flair", {}),
    ("FLAIR_longTR", SPIN, IR, 11000, 125, 2800, "flair", {}),
    ("FLAIR_longTR", SPIN, IR, 11000, 125, None, "flair", {}),
    ("3D_Brain_VIEW_FLAIR_SHC", SPIN, SEIR, 4800, 283, 1660, "flair", {}),
    ("3D_Brain_VIEW_T2", SPIN, SE, 2500, 260, None, "t2", {}),
    ("T2W_FFE", FIELD, GR, 693, 16, None, None, {}),
    ("DWI_SSh", SPIN, SE, 3100, 87, None, None, {"b_value": 0.0}),
    ("dADC", ("DERIVED", "PRIMARY", "ADC", "ADC", "UNSPECIFIED"), SE, 3100, 87, None, None, {}),
    ("SWIp", FIELD, GR, 31, 7.2, None, None, {}),
    ("s3DI_MC_HR", FIELD, GR, 23, 3.5, None, None, {}),
    ("Survey_SHC", FIELD, GR, 11, 4.6, None, None, {}),
    ("Ref_Head_8", FIELD, GR, 4, 0.8, None, None, {}),
    ("3D_PCA_COW", ("ORIGINAL", "PRIMARY", "PHASE CONTRAST M", "M", "PCA"), GR, 20, 4, None, None, {}),
    ("BFFE_HR", FIELD, GR, 5.6, 2.4, None, None, {"flip_angle": 60}),
    # Canon and Toshiba
    ("AX T1 SE", CANON, SE, 540, 12, None, "t1", {}),
    ("AX T1 CE", CANON, SE, 540, 12, None, "t1gd", {}),
    ("Ax T2 FSE2D", CANON, SE, 4300, 105, None, "t2", {}),
    ("FLAIR AX", CANON, ("SE", "IR"), 10000, 105, 2700, "flair", {}),
    ("3D FLAIR MPV", CANON, SEIR, 6000, 430, 1900, "flair", {}),
    ("3D T1 FFE MPRAGE", CANON, GRIR, 6.0, 2.6, 900, "t1", {}),
    ("FSBB", CANON, GR, 50, 22, None, None, {}),
    ("AX DWI SEEPI", CANON, EP, 5600, 80, None, None, {}),
    # tags gone: words alone
    ("T1 POST", (), (), None, None, None, "t1gd", {}),
    ("t1n", (), (), None, None, None, "t1", {}),
    ("patient7_T1ce", (), (), None, None, None, "t1gd", {}),
    ("sub-01_ce-gadolinium_T1w", (), (), None, None, None, "t1gd", {}),
    ("sub-01_T1w", (), (), None, None, None, "t1", {}),
    ("control_3_T1", (), (), None, None, None, "t1", {}),
    ("visit2_AXT2", (), (), None, None, None, "t2", {}),
    ("T2FLAIR", (), (), None, None, None, "flair", {}),
    ("Ax T2 FLAIR fs", (), (), None, None, None, "flair", {}),
    ("sub-01_dwi", (), (), None, None, None, None, {}),
    ("Sag 3D", (), (), None, None, None, None, {"acquisition_contrast": "DIFFUSION"}),
    ("Sag 3D", (), (), None, None, None, "flair", {"acquisition_contrast": "FLUID_ATTENUATED"}),
    # description gone, timing stays
    ("", (), SE, 520, 11, None, "t1", {}),
    ("", (), SE, 520, 11, None, "t1gd", {"contrast_agent": True}),
    ("", GE, SEIR, 8802, 140, 2250, "flair", {}),
]  # fmt: skip


def a_series(tags: Tags) -> Series:
    def load() -> NDArray[np.float32]:
        return np.random.default_rng(0).integers(0, 900, (16, 12, 40)).astype(np.float32)

    return Series(f"s{tags.number}", tags, (16, 12, 40), np.diag([1.0, 1.0, 4.0, 1.0]), load)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[4]}-{row[5]}-{row[6]}")
def test_a_series_is_what_it_is(row: tuple[Any, ...]) -> None:
    description, image_type, sequence, tr, te, ti, wanted, more = row
    given = {"inversion_time": ti, **more}
    tags = Tags(
        5, description, image_type=image_type, scanning_sequence=sequence, repetition_time=tr, echo_time=te, **given
    )
    channel, reasons = type_series(a_series(tags))
    if channel == "t1":  # type_series leaves the contrast agent to the whole study
        flair = a_series(Tags(9, "FLAIR", repetition_time=9000, echo_time=120, inversion_time=2500))
        channel = next(name for name, one in choose_series([a_series(tags), flair]).choices.items() if name != "flair")
    assert channel == wanted, reasons
    assert wanted is not None or reasons


def test_of_a_description_only_the_word_that_decided_is_shown() -> None:
    (reason,) = type_series(a_series(Tags(5, "Miller Anna gre")))[1]
    assert reason == "is another kind of image (its description says 'gre')"


@pytest.mark.parametrize(("keyword", "value", "given"), [
    ("ContrastBolusAgent", "Gadovist", True), ("ContrastBolusAgent", "NONE", False), ("ContrastBolusAgent", "", False),
    ("ContrastBolusVolume", 7.5, True), ("ContrastBolusVolume", 0.0, False), ("ContrastBolusRoute", "IV", True),
])  # fmt: skip
def test_a_contrast_agent_is_known_without_its_name(keyword: str, value: object, given: bool) -> None:
    header = pydicom.Dataset()
    setattr(header, keyword, value)
    assert agent_given(header) is given


def test_an_examinations_protocol_says_nothing_about_a_series() -> None:
    protocol = "BRAIN TUMOR W/WO CONTRAST"
    rows = [(3, "Ax T1", 600, 14, None), (7, "Ax T1 +C", 600, 14, None), (4, "Ax T2", 4700, 100, None),
            (5, "Ax FLAIR", 9000, 120, 2400)]  # fmt: skip
    study = [
        a_series(Tags(n, name, protocol, repetition_time=tr, echo_time=te, inversion_time=ti, contrast_agent=True))
        for n, name, tr, te, ti in rows
    ]
    chosen = {channel: choice.series.key for channel, choice in choose_series(study).choices.items()}
    assert chosen == {"t1": "s3", "t1gd": "s7", "t2": "s4", "flair": "s5"}


def test_two_t1_without_a_word_about_contrast_agent_are_said() -> None:
    flair = a_series(Tags(9, "FLAIR", repetition_time=9000, echo_time=120, inversion_time=2500))
    study = [a_series(Tags(n, "Ax T1", repetition_time=600, echo_time=14)) for n in (3, 7)]
    typing = choose_series([*study, flair])
    assert typing.choices["t1"].series.key == "s3"
    assert "s3, s7 are T1, and nothing says that one was taken after contrast agent" in typing.warnings[-1]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("T1 GD", True), ("t1_post", True), ("Ax T1 C+", True), ("T1+C", True), ("T1_contrast", True), ("T1KM", True),
        ("T1 INJ", True), ("T1 GADO", True), ("MPRAGE enhanced", True), ("T1c", True), ("T1 POST FS", True),
        ("T1 pre", False), ("T1 native", False), ("T1 non-contrast", False), ("T1 without gd", False), ("T1 C-", False),
        ("T1 unenhanced", False), ("precontrast T1", False), ("T1 ohne KM", False), ("T1 sans inj", False),
        ("T1 vor KM", False), ("T1oKM", False), ("T1 -C", False), ("T1 NON CON", False), ("T1 senza mdc", False),
        ("T1mKM", True), ("T1 dopo mdc", True), ("+C AX T1", True), ("T1 civ", True),
        ("T1 posterior fossa", None), ("T1 axial", None), ("T1_postop", None), ("control T1", None), ("T1 W/WO", None),
        ("T1 control", None),
    ],
)  # fmt: skip
def test_words_about_a_contrast_agent(text: str, after: bool | None) -> None:
    found = agent_by_words(text)
    assert (None if found is None else found[0]) is after
