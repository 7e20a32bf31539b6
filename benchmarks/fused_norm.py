"""Whether the fused norm is worth its code: training passes with it and with torch's own, in turns.

    python benchmarks/fused_norm.py

AVX-512 and AVX2 (torch is told to use no more), one and two threads; a machine without AVX-512 prints AVX2 twice. Each
figure is the fastest of several passes over the shipped encoder, forwards and backwards, as other work only slows down.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

KINDS = {"AVX-512": {}, "AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}}
IMAGES = 8
ROUNDS = 6


def main() -> None:
    print("kind     threads   fused ms   torch ms   ratio")
    for kind, environment in KINDS.items():
        for threads in (1, 2):
            command = [sys.executable, __file__, str(threads)]
            done = subprocess.run(
                command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
            )
            fused, plain = (float(word) for word in done.stdout.split())
            print(f"{kind:8} {threads:7} {fused:10.1f} {plain:10.1f} {fused / plain:7.2f}", flush=True)


def measure(threads: int) -> tuple[float, float]:
    """Milliseconds per image of a pass with the fused norm and with torch's."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    from diptych.model import blocks, load_model
    from diptych.model.cpu.fused_norm import normalise

    def plain(norm: nn.GroupNorm, x: Tensor, *, slope: float = 1.0) -> Tensor:
        return F.leaky_relu(norm(x), slope)

    torch.set_num_threads(threads)
    encoder = load_model().encoder.train()
    images = torch.randn(IMAGES, 4, 128, 128).contiguous(memory_format=torch.channels_last)
    best = {normalise: float("inf"), plain: float("inf")}
    for turn in range(ROUNDS):
        for way in best:
            vars(blocks)["normalise"] = way  # every block looks it up here
            started = time.perf_counter()
            sum(grid.sum() for grid in encoder(images)).backward()
            if turn:
                best[way] = min(best[way], 1000 * (time.perf_counter() - started) / IMAGES)
    return best[normalise], best[plain]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*measure(int(sys.argv[1])))
    else:
        main()
