"""The plot in plain characters."""

import pytest


def plot(points, **size):
    from aisim_jax.report import Series, terminal_plot

    series = [Series("only", "o", [(float(x), float(y)) for x, y in points])]
    return terminal_plot(series, x_label="x", y_label="y", **size)


@pytest.mark.parametrize("width", [30, 60, 100, 200])
def test_plot_keeps_to_its_width(width):
    points = [(x, 1000 / x) for x in range(1, 100)]
    lines = plot(points, width=width).splitlines()
    assert max(len(line) for line in lines) <= width


def test_higher_points_are_drawn_higher_and_larger_x_further_right():
    lines = plot([(10, 100), (20, 50)], width=60).splitlines()
    found = [(at, line.index("o")) for at, line in enumerate(lines[:-1]) if "o" in line]
    (high, left), (low, right) = found
    assert high < low and left < right


@pytest.mark.parametrize("points", [[(5, 5)], [(0, 0)], [(1e-9, 1e9)], [(7, 3)] * 4])
def test_degenerate_ranges_still_draw_the_point(points):
    assert "o" in plot(points)


def test_no_points_are_said():
    assert plot([]) == "(no points to draw)"
