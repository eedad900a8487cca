"""The Pareto frontier as a PNG picture."""

from __future__ import annotations

import io

from ._deployment import SERVING_MODES, SweepReport
from ._palette import COLOURS


MARKERS = {"circle": "o", "x": "x", "star": "*"}


def pareto_picture(report: SweepReport) -> bytes:
    """PNG bytes, 1200 x 750 pixels; needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for mode, title in SERVING_MODES.items():
        points = [report.point(row) for row in report.pareto[mode]]
        if points:
            colour, symbol = COLOURS[mode]
            axes.plot(
                *zip(*points, strict=True),
                color=colour,
                marker=MARKERS[symbol],
                markersize=4,
                linewidth=1,
                drawstyle="steps-post" if report.by_latency else "steps-pre",
                label=title,
            )
    if report.chosen is not None:
        colour, symbol = COLOURS["chosen"]
        x, y = report.point(report.chosen)
        axes.scatter(
            x, y, s=180, color=colour, marker=MARKERS[symbol], zorder=3, label="chosen"
        )
    axes.set_title(report.model, loc="left", fontsize=11)
    axes.set_xlabel(report.speed_label)
    axes.set_ylabel("tokens/s/GPU")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()
