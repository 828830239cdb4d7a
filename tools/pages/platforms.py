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
        [name, f"{one['frames of both']:.3%}", f"{one['worst image']:.2%}",
         f"{one['cosine, lowest in a thousand']:.6f}", f"{one['lowest cosine']:.4f}",
         f"{one['bit-identical images']:.0f} of {len(IMAGES)}"]
        for name, one in compared.items()
    ]  # fmt: skip
    head = ["builds", "frames that both find", "in the worst photograph",
            "cosine, lowest in a thousand", "lowest cosine", "bit-identical photographs"]  # fmt: skip
    return render(
        "platforms.md", near=NEAR, common=PROMISED["worst image"],
        cosine=PROMISED["cosine, lowest in a thousand"], features=f"{FEATURES:,}",
        agreement=table(head, agreement), machine=speed["machine"],
        times=table(["", "compared with", "1 thread", "2 threads"], times),
    )  # fmt: skip
