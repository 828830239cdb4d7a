"""docs/platforms.md, from the results of ``python -m tools.builds`` and ``caloric bench speed``."""

from tools.builds import FEATURES, IMAGES, NEAR, PROMISED
from tools.pages.markdown import render, results, table


def page() -> str:
    """Return the text of the page."""
    compared, speed = results("builds"), results("speed-arm")
    times = []
    for task in ("extract", "detect", "describe", "match"):
        ratios = [speed["threads"][n][task]["caloric, core"]["ratio"] for n in ("1", "2")]
        reference = next(iter(speed["threads"]["1"][task]))
        times.append([task, reference, *(f"{ratio:.2f}" for ratio in ratios)])
    agreement = [
        [name, f"{result['frames of both']:.3%}", f"{result['worst image']:.2%}",
         f"{result['cosine, lowest in a thousand']:.6f}", f"{result['lowest cosine']:.4f}",
         f"{result['bit-identical images']:.0f} of {len(IMAGES)}"]
        for name, result in compared.items()
    ]  # fmt: skip
    head = ["builds", "common frames", "common frames, worst photograph",
            "0.1th percentile of the cosine", "lowest cosine", "bit-identical photographs"]  # fmt: skip
    return render(
        "platforms.md", near=NEAR, common=PROMISED["worst image"],
        cosine=PROMISED["cosine, lowest in a thousand"], features=f"{FEATURES:,}",
        agreement=table(head, agreement), machine=speed["machine"],
        times=table(["", "compared with", "1 thread", "2 threads"], times),
    )  # fmt: skip
