"""What the words of a series mean: descriptions as people and scanners write them, in any case and spelling.

Descriptions are typed by hand in every hospital, so these rules are lists of what was met, with word borders: digits,
blanks and `_` part words, letters do not. Tells which sequence a description names, whether it speaks of another kind
of image, and whether of a contrast agent. Knows text; timing, image types and voxels are weighed in `series_typing.py`.
"""

from __future__ import annotations

import re

OTHER_TYPES = frozenset((
    "ADC", "EADC", "FA", "TRACEW", "TRACE", "EXP", "DIFFUSION", "PERFUSION", "CBV", "RCBV", "CBF", "RCBF", "MTT",
    "TTP", "TMAX", "ASL", "FMRI", "SW", "SWI", "VENBOLD", "MIP", "MINIP", "MNIP", "P", "PHASE", "VELOCITY",
    "SUBTRACTION", "SUB", "LOCALIZER", "FAT", "FAT_FRACTION", "OPP_PHASE", "OUT_PHASE", "REAL", "IMAGINARY", "MOSAIC",
    "T2_STAR", "PHASE MAP", "PROJECTION IMAGE", "VELOCITY MAP", "T1 MAP", "T2 MAP", "T2_STAR MAP", "R2 MAP",
    "R2_STAR MAP", "B0 MAP", "B1 MAP", "FIELD_MAP", "PHASE CONTRAST M", "PHASE CONTRAST P", "SCREEN SAVE",
))  # fmt: skip
"""Words of ImageType that no sequence of ours carries. `OTHER` is not among them: GE writes it everywhere."""


def _word(*spellings: str) -> str:
    """Any of these, with no letter before or after it."""
    return rf"(?<![a-z])(?:{'|'.join(spellings)})(?![a-z])"


_OTHER = re.compile(
    "|".join(
        (
            # diffusion
            r"dwi|diffus|apparent|fractional|anisotrop|isotropic image|average dc|b-?value",
            _word("e?adc", "diff", "ep2d", "trace\\w?", "dti", "hardi", "dki", "tensor", "fa(?![0-9])", "col.?fa"),
            r"(?<![a-z])b ?=? ?(500|800|1000|1500|2000|3000)(?![0-9])",
            # susceptibility, vessels, flow
            r"suscept|ven.?bold|t2 ?\*|t2.?star|hemo(?!glob)",
            _word("e?swip?", "e?swan", "fsbb", "qsm", "tof", "mr[av]", "pca", "3d.?pc", "s?3di", "t2.?ffe"),
            r"angio|inflow|venogra|time.of.flight|(mag|pha|mip|swi)_images|filt_pha",
            # perfusion, function, chemistry
            r"perf|resting|dynamic|arterial spin|spectro|single.?voxel|multi.?voxel",
            _word(
                "dsc", "dce", "[pc3d]*asl", "r?cb[vf]", "mtt", "ttp", "tmax", "ktrans", "bold", "f?mri.?rest", "fmri"
            ),
            _word("twist", "tricks", "csi", "svs", "mrsi?", "press", "steam", "semi.?laser"),
            # planning and calibration
            r"locali[sz]er|scout|survey|calib|smart.?brain|field.?map|b[01].?map|ref_?(head|scan)",
            _word("loc", "3.?pl(ane)?", "asset", "cal", "shim", "tri.?plane"),
            # steady states, other inversions, maps and pictures
            r"true.?fisp|double.?(ir|inv)|phase.?sens|(t1|t2|r1|r2).?map|subtract|screen.?sav|secondary capture",
            _word("ciss", "ci3d", "fiesta.?c?", "trufi", "b.?ffe", "btfe", "stir", "psir", "dir", "inv.?[12](?![0-9])"),
            _word("m(in|n)?ip", "sub(?![-_ ]?[0-9]|-)", "phase", "pha", "pd.?map", "fused", "color", "colour"),
            # another part of the body
            r"spine|cervic|lumbar|thorac|orbit|sella|pituit",
            _word("[ctl].?sp", "neck", "iacs?", "tmj"),
        )
    ),
    re.IGNORECASE,
)
_GRADIENT = re.compile(_word("gre", "mpgr", "merge", "medic"), re.IGNORECASE)
"""A gradient echo that does not call itself T1 is T2*."""
_PROTON = re.compile(rf"proton|{_word('pdw?', 'dp')}", re.IGNORECASE)
_BEFORE_T = r"(?<![a-z])(?:s|w|r|ax|axial|sag|cor|tra|3d|2d|ce|mr|gd)?"
_SEQUENCES = {
    "flair": re.compile(r"flair|tirm|dark.?fl|t2f(?![a-z])|fluid.?att", re.IGNORECASE),
    "t2": re.compile(rf"{_BEFORE_T}t2(?!f)|{_word('frfse', 'propeller', 'blade', 'haste', 'fase')}", re.IGNORECASE),
    "t1": re.compile(
        rf"{_BEFORE_T}t1|mp2?.?rage|"
        rf"{_word('mpr', 'f?spgr', 'bravo', 'vibe', 'tfl', 'mdeft', '3d.?tfe', 'thrive', 'lava')}",
        re.IGNORECASE,
    ),
}
_EITHER = re.compile(r"t2w?\s*/\s*flair", re.IGNORECASE)
"""Philips writes this on both."""
_AGENT = r"(?:contr(?!ol)\w*|kontr(?!ol)\w*|gad\w*|gd|km|mdc|ce|c|enh\w*|inj\w*|iv|agent)"
_BEFORE = re.compile(
    rf"(?<![a-z])(?:non?|w/?o|without|ohne|sans|sin|senza|minus|before|vor|avant|antes|prima)[\W_]*{_AGENT}(?![a-z])"
    r"|(?<![a-z])pre(?:[\W_]*(?:contr\w*|gad\w*|gd|km|c|inj\w*))?(?![a-z]|[-_ ]?op)|(?<![a-z])nativ\w*"
    r"|(?<![a-z])(?:non.?|un|not.?)enhanced|noncon\w*|(?<![a-z])non[-_ ]?con(?![a-z])|(?<![a-z])plain(?![a-z])"
    r"|t1n(?![a-z])|(?<![a-z])c-(?![a-z0-9])|(?<![\w-])-\s?c(?![a-z])|t1w?okm(?![a-z])"
    r"|(?<![a-z])(?:w/?o|without|ohne|sans)(?![a-z]|[\W_]*(?:fs|fat|sat))",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"t1w?[-_ ]?(?:ce|c|gd|gad\w*|post(?!er|op|[-_ ]?op)\w*|m?km|contr(?!ol)\w*|inj\w*)(?![a-z])|(?<![a-z])ce[-_ ]?t1"
    r"|(?<![a-z])(?:gd|gad\w*|dotarem|magnevist|prohance|multihance|omniscan|clariscan|vueway|m?km|mdc|civ)(?![a-z])"
    r"|(?<![a-z])(?:post(?!er|op|[-_ ]?op)\w*|enh\w*|inj\w*|delay\w*)(?![a-z])"
    r"|(?<![a-z])(?:ce|c\+|\+\s?c|\+\s?gd|contr(?!ol)\w*|kontr(?!ol)\w*)(?![a-z])"
    r"|\+\s?c(?![a-z])|c\s?\+|[-_ ]c$",
    re.IGNORECASE,
)
_BOTH = re.compile(
    r"(?<![a-z])w(ith)?[\W_]*(?:/|&|and|\+)?[\W_]*(?:w/?o|without)(?![a-z])([\W_]*contr\w*)?", re.IGNORECASE
)
"""W/WO CONTRAST: an examination, not a series."""


def other_kind(text: str, *, long_echo: bool) -> str | None:
    """The word by which a description says that it is none of our sequences; a long echo is no proton density.

    >>> other_kind("ax gre hemo", long_echo=False), other_kind("T1 GRE", long_echo=False)
    ('hemo', None)
    """
    found = _OTHER.search(text) or (None if "t1" in text.lower() else _GRADIENT.search(text))
    found = found or (None if long_echo else _PROTON.search(text))
    return None if found is None else found[0][-24:].strip(" _-") or None


def named_sequences(text: str) -> dict[str, str]:
    """Channels that a description may mean, `t1` standing for T1 and T1Gd, with the word that says so.

    >>> named_sequences("t2_tirm_tra_dark-fluid"), named_sequences("Sag T1 FLAIR"), named_sequences("axial")
    ({'flair': 'tirm'}, {'t1': 'T1'}, {})
    """
    found = {channel: match[0] for channel, words in _SEQUENCES.items() if (match := words.search(text))}
    if "flair" in found and "t1" in found:
        found.pop("flair")  # T1 FLAIR, T1 dark-fluid: an inversion that makes fluid dark in a T1
    elif "flair" in found and not _EITHER.search(text):
        found.pop("t2", None)  # T2 FLAIR is a FLAIR
    return found


def agent_by_words(text: str) -> tuple[bool, str] | None:
    """Whether a T1 was taken after contrast agent, and the word that says so; None where nothing does.

    >>> agent_by_words("AX T1 POST NON FS"), agent_by_words("T1 w/o contrast"), agent_by_words("ax t1")
    ((True, 'T1 POST'), (False, 'w/o contrast'), None)
    """
    text = _BOTH.sub(" ", text)
    before = _BEFORE.search(text)
    after = _AFTER.search(_BEFORE.sub(" ", text))
    if after is not None and before is None:
        return True, after[0].strip(" _-")
    return None if before is None else (False, before[0].strip(" _-"))


def in_plain_words(text: str) -> list[str]:
    """What a description says, in words of ours by which every rule here decides the same as by the description.

    >>> in_plain_words("AX T1 W/O CONTRAST Mr Smith"), in_plain_words("sT2W/FLAIR"), in_plain_words("head")
    (['t1', 'pre contrast'], ['t2w/flair'], [])
    """
    named = named_sequences(text)
    sequences = ["t2w/flair"] if {"t2", "flair"} <= set(named) else list(named)
    agent = agent_by_words(text)
    contrast = [] if agent is None else ["post contrast" if agent[0] else "pre contrast"]
    kind = other_kind(text, long_echo=False)
    return [*sequences, *contrast, *([] if kind is None else [kind.lower()])]
