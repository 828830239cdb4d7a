"""The table and the plot of the speed benchmark."""

from pathlib import Path

from caloric.types import Report
from caloric.viz import plots


def table(report: Report) -> list[str]:
    """Return lines for the terminal."""
    lines = [f"{report['machine']['processor']}, {report['path']}"]
    alone = ", OpenCV and Caloric alone in the process"
    kinds = {"": report["threads"], alone: report["with OpenCV alone"]}
    for kind, by_threads in kinds.items():
        for number, tasks in by_threads.items():
            lines.append(f"\n{threads_text(number)}{kind}: ratio (quartiles), time")
            for task, names in tasks.items():
                for name, result in names.items():
                    low, high = result["quartiles"]
                    ratio = f"{result['ratio']:7.3f} ({low:.3f} to {high:.3f})"
                    lines.append(
                        f"{task:12} {name:30} {ratio:26} {1000 * result['seconds']:9.1f} ms"
                    )
    lines.append("\n" + gains_text(report))
    for row in report["large"]:
        lines.append(
            f"{row['pixels'] / 1e6:7.1f} megapixels: {row['seconds']:6.1f} s, "
            f"{row['features']} features, {row['peak bytes'] / 1e9:.2f} GB peak memory"
        )
    return lines


def threads_text(number: str) -> str:
    """Return "1 thread" or "2 threads"."""
    return f"{number} thread{'s' if number != '1' else ''}"


def gains_text(report: Report) -> str:
    """Return sentences on the speedup by threads and its upper bound on this machine."""
    rows, parallel = report["curves"]["threads"], report["side by side"]
    names = [name for name in rows[0] if name != "at"]
    gains = "; ".join(f"{name} {rows[0][name] / rows[-1][name]:.2f}" for name in names)
    return (
        f"Speedup with {rows[-1]['at']} threads: {gains}. For comparison, {parallel['processes']} "
        f"parallel processes with `CALORIC_THREADS=1` have {parallel['gain']:.2f} times the "
        "throughput of one; that is the upper bound on this machine."
    )


def plot(report: Report, path: Path) -> None:
    """Plot time against pixels, features and threads, and memory against pixels."""
    figure = plots.new_figure(figsize=(9, 6.5))
    axes = figure.subplots(2, 2).ravel()
    labels = {"pixels": "megapixels", "features": "features kept", "threads": "threads"}
    for axis, (name, label) in zip(axes, labels.items(), strict=False):
        rows, unit = report["curves"][name], 1e-6 if name == "pixels" else 1
        for method in [key for key in rows[0] if key != "at"]:
            axis.plot([r["at"] * unit for r in rows], [r[method] for r in rows], "o-", label=method)
        axis.set(xlabel=label, ylabel="seconds to extract")
        axis.grid(alpha=0.3)
        if name == "pixels":
            axis.set(xscale="log", yscale="log")
            axis.set_xticks([unit * r["at"] for r in rows], [f"{unit * r['at']:.2g}" for r in rows])
            axis.minorticks_off()
        else:
            axis.set_ylim(0, None)
    axes[2].set_xticks([r["at"] for r in report["curves"]["threads"]])
    axes[0].legend(fontsize=8)
    rows = report["large"]
    megapixels, memory = [r["pixels"] / 1e6 for r in rows], [r["peak bytes"] / 1e9 for r in rows]
    axes[3].plot(megapixels, memory, "o-", color="tab:gray", label="caloric")
    axes[3].set(xlabel="megapixels", ylabel="peak memory [GB]")
    axes[3].legend(fontsize=8)
    axes[3].set_ylim(0, None)
    axes[3].grid(alpha=0.3)
    figure.savefig(path, dpi=120)
