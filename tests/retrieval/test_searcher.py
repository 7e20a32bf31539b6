"""One list of metrics, one default, one dispatch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from diptych.errors import UsageError
from diptych.metrics.searcher import DEFAULT, METRICS
from diptych.search import PANELS
from tests.retrieval.test_fusion import with_learned
from tests.retrieval.test_overlap import ToyDecoder, make_searcher
from tests.search.oracle import make_archive


class LesionDecoder(ToyDecoder):
    panels = ("abnormal",)


def test_a_model_offers_what_it_has_tables_and_decoders_for() -> None:
    plain, learned = make_searcher(make_archive(1)), make_searcher(with_learned(make_archive(1)))
    assert plain.offered() == ("euclidean", "angular", "hamming", "overlap")
    assert learned.offered("both") == tuple(METRICS)
    assert (plain.default, learned.default) == ("euclidean", "learned")


def test_the_default_is_settled_and_raw_sums_are_the_papers() -> None:
    archive = with_learned(make_archive(1))
    searcher, query = make_searcher(archive), archive.query(0, by="both", metric=DEFAULT)
    assert searcher.settle(query).metric == "learned"
    assert searcher.settle(replace(query, combine="paper")).metric == "euclidean"


def test_an_unknown_metric_is_answered_with_all_that_there_are() -> None:
    archive = with_learned(make_archive(1))
    with pytest.raises(UsageError, match=r"metric cosine: .* euclidean, angular, hamming, learned, overlap, fusion"):
        make_searcher(archive).search(archive.query(0, by="both", metric="cosine"))


def test_codes_that_nothing_decodes_name_the_command_that_helps() -> None:
    archive = make_archive(1)
    searcher = make_searcher(archive)
    assert searcher.planes is not None
    searcher.planes.decoder = LesionDecoder()
    assert searcher.offered("normal") == ("euclidean", "angular", "hamming")
    with pytest.raises(UsageError, match=r"overlap: nothing decodes this model's normal codes .*'diptych fit labels'"):
        searcher.search(archive.query(0, by="both", metric="overlap"))


def test_labels_are_not_compared_out_of_place() -> None:
    archive = make_archive(1)
    with pytest.raises(UsageError, match=r"to search anywhere, take euclidean, angular, hamming"):
        make_searcher(archive).search_histograms(archive.query(0, by="abnormal", metric="overlap"))


@pytest.mark.parametrize("metric", list(METRICS))
@pytest.mark.parametrize("by", [*PANELS, "both"])
def test_a_match_tells_what_its_panels_weigh(metric: str, by: str) -> None:
    archive = with_learned(make_archive(2, grid=(2, 3)))
    for match in make_searcher(archive).search(archive.query(3, by=by, weight=0.3, metric=metric)):
        panels = [panel for panel in (match.normal, match.abnormal) if panel is not None]
        assert sum(panel.weight * panel.distance for panel in panels) == pytest.approx(match.distance)
        whole = np.sum([panel.weight * panel.contributions for panel in panels], axis=0)
        assert whole == pytest.approx(match.contributions)
        assert [panel.weight > 0 for panel in panels] == [by in (name, "both") for name in PANELS]


@pytest.mark.parametrize("metric", list(METRICS))
def test_distances_to_all_slices_are_those_of_matches(metric: str) -> None:
    archive = with_learned(make_archive(2, grid=(2, 3)))
    searcher, query = make_searcher(archive), archive.query(3, by="both", metric=metric)
    distances = searcher.distances(query)
    assert distances.shape == archive.volume_of_slice.shape
    for match in searcher.search(query):
        assert match.distance == pytest.approx(distances[match.slice])


def test_nothing_is_decoded_before_labels_are_compared() -> None:
    archive = make_archive(1)
    searcher = make_searcher(archive)
    searcher.search(archive.query(0, by="both"))
    assert (searcher.ready("euclidean"), searcher.ready("overlap")) == (True, False)
    assert not searcher.ready("euclidean", rerank=20)
    searcher.prepare()
    assert searcher.ready("overlap")
