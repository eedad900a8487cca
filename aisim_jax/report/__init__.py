"""Tables, plots and files that show results to a person.

Names load on first use: a table of profiles needs neither jax nor a plot library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aisim_jax._lazy import lazy_names


if TYPE_CHECKING:
    from ._capacity_text import MemoryShare as MemoryShare
    from ._capacity_text import capacity_json as capacity_json
    from ._capacity_text import capacity_text as capacity_text
    from ._capacity_text import memory_bar as memory_bar
    from ._capacity_text import memory_shares as memory_shares
    from ._deployment import SweepReport as SweepReport
    from ._deployment import deployment_batch as deployment_batch
    from ._deployment import deployment_layout as deployment_layout
    from ._deployment import deployment_memory as deployment_memory
    from ._deployment import layout_words as layout_words
    from ._deployment import sweep_report as sweep_report
    from ._estimate_text import EstimateReport as EstimateReport
    from ._estimate_text import OperationRow as OperationRow
    from ._estimate_text import estimate_json as estimate_json
    from ._estimate_text import estimate_text as estimate_text
    from ._launch import LaunchCommand as LaunchCommand
    from ._launch import launch_commands as launch_commands
    from ._pareto_page import pareto_page as pareto_page
    from ._pareto_picture import pareto_picture as pareto_picture
    from ._plot_name import check_plot_name as check_plot_name
    from ._prediction_files import prediction_json as prediction_json
    from ._prediction_files import write_prediction as write_prediction
    from ._prediction_text import prediction_text as prediction_text
    from ._profiles_text import models_json as models_json
    from ._profiles_text import models_text as models_text
    from ._profiles_text import profiles_csv as profiles_csv
    from ._profiles_text import profiles_json as profiles_json
    from ._profiles_text import profiles_text as profiles_text
    from ._profiles_text import system_json as system_json
    from ._profiles_text import system_text as system_text
    from ._recommendation_text import recommendation_text as recommendation_text
    from ._sweep_files import sweep_json as sweep_json
    from ._sweep_files import write_plot as write_plot
    from ._sweep_files import write_sweep as write_sweep
    from ._sweep_text import sweep_text as sweep_text
    from ._terminal_plot import Series as Series
    from ._terminal_plot import terminal_plot as terminal_plot


_HOMES = {
    "MemoryShare": "._capacity_text",
    "capacity_json": "._capacity_text",
    "capacity_text": "._capacity_text",
    "memory_bar": "._capacity_text",
    "memory_shares": "._capacity_text",
    "SweepReport": "._deployment",
    "deployment_batch": "._deployment",
    "deployment_layout": "._deployment",
    "deployment_memory": "._deployment",
    "layout_words": "._deployment",
    "sweep_report": "._deployment",
    "EstimateReport": "._estimate_text",
    "OperationRow": "._estimate_text",
    "estimate_json": "._estimate_text",
    "estimate_text": "._estimate_text",
    "LaunchCommand": "._launch",
    "launch_commands": "._launch",
    "pareto_page": "._pareto_page",
    "pareto_picture": "._pareto_picture",
    "prediction_json": "._prediction_files",
    "write_prediction": "._prediction_files",
    "prediction_text": "._prediction_text",
    "models_json": "._profiles_text",
    "models_text": "._profiles_text",
    "profiles_csv": "._profiles_text",
    "profiles_json": "._profiles_text",
    "profiles_text": "._profiles_text",
    "system_json": "._profiles_text",
    "system_text": "._profiles_text",
    "check_plot_name": "._plot_name",
    "recommendation_text": "._recommendation_text",
    "sweep_json": "._sweep_files",
    "write_plot": "._sweep_files",
    "write_sweep": "._sweep_files",
    "sweep_text": "._sweep_text",
    "Series": "._terminal_plot",
    "terminal_plot": "._terminal_plot",
}

__getattr__ = lazy_names(__name__, _HOMES)
