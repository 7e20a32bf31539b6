"""Work is shared evenly among threads."""

from __future__ import annotations

import pytest
import torch

from diptych.model.cpu.fused_norm import in_threads, shares


def test_shares_cover_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert shares(8) == [(0, 2), (2, 5), (5, 8)]
    assert shares(2) == [(0, 1), (1, 2)]


def test_every_share_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    done: list[tuple[int, str]] = []
    in_threads(lambda number, letter: done.append((number, letter)), [1, 2, 3], "abc")
    assert sorted(done) == [(1, "a"), (2, "b"), (3, "c")]


def test_an_error_in_another_thread_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda number: print(1 / number), [1, 0])
