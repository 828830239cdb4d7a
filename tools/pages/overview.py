"""Write the first table of the README, accuracy and speed, from the results of benchmarks."""

from typing import Any

from tools.pages.markdown import table

Report = dict[str, Any]
_ROWS = {  # row: (name among the own detectors of oxford.json, name in extract of speed.json)
    "OpenCV SIFT, root": ("OpenCV SIFT, root", "OpenCV SIFT"),
    "COLMAP SIFT": ("COLMAP SIFT", "COLMAP SIFT"),
    "COLMAP DSP-SIFT": ("COLMAP DSP-SIFT", "COLMAP DSP-SIFT"),
    "**caloric**": ("caloric", "caloric, core"),
    "caloric, affine shapes": ("caloric, affine", None),
}
_COLUMNS = {
    "mAP": "mAP", "R@1": "R@1", "MMA 3": "right without a ratio test",
    "repeatability": "frames found again",
}  # fmt: skip


def lines(oxford: Report, speed: Report, gpu: Report) -> list[str]:
    """Return the table on Oxford Affine with own detectors; the best of each column is bold."""
    own, times = oxford["own detectors"], speed["threads"]["1"]["extract"]
    best = {
        key: max(own[name]["figures"][key]["mean"] for name, _ in _ROWS.values())
        for key in _COLUMNS
    }
    rows = []
    for shown, (name, timed) in _ROWS.items():
        figures = [own[name]["figures"][key]["mean"] for key in _COLUMNS]
        cells = [
            f"**{value:.3f}**" if value == best[key] else f"{value:.3f}"
            for key, value in zip(_COLUMNS, figures, strict=True)
        ]
        rows.append([shown, *cells, f"{times[timed]['ratio']:.2f}" if timed else ""])
    many = next(iter(gpu["arrays"].values()))["colour"]["images a second, one list"]
    there = [value for name, value in gpu["oxford"].items() if name.endswith("own frames")][1]
    device = gpu["about"]["device"]
    cells = [f"{there:.3f}", "", "", "", f"{1000 / many:.2f} ms an image, from arrays"]
    rows.append([f"caloric on an {device}", *cells])
    return table(["", *_COLUMNS.values(), "time, OpenCV = 1"], rows)
