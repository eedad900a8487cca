"""Experiments to results: compile the pools once, evaluate, rank, explain."""

from __future__ import annotations

from collections.abc import Mapping

from aisim_jax._defaults import TOP_N
from aisim_jax._errors import AisimError, InfeasibleError, InvalidInputError
from aisim_jax.models import check_context, load_model

from ._evaluation import evaluate_aggregated, evaluate_disaggregated
from ._experiment import Experiment
from ._outcome import describe_failure
from ._picking import Load, check_load
from ._pools import ROLES, RolePlan, compile_plans, plan_role, view
from ._ranking import rank
from ._result import ExperimentResult, SweepResult
from ._surfaces import SHARED, SurfaceCache


def run_experiments(
    questions: Mapping[str, Experiment],
    *,
    mode: str = "complete",
    top_n: int = TOP_N,
    strict_sla: bool = False,
    load: Load | None = None,
    cache: SurfaceCache = SHARED,
) -> SweepResult:
    """Evaluate named experiments together.

    mode: "complete" evaluates and keeps every point; "compat" reproduces the reference
        sweep's order, cuts and rounding
    load: size for a load instead of a fixed GPU budget
    cache: compiled surfaces to reuse

    An experiment that cannot run (no tables for that engine, unbuilt model family) is
    recorded and does not stop the others; if all fail, its error is raised.
    """
    if load is not None:
        check_load(load)
    plans: dict[str, dict[str, RolePlan]] = {}
    errors: dict[str, AisimError] = {}
    for name, question in questions.items():
        try:
            _require_two_phases(question)
            if mode == "complete":
                _require_context(question)
            plans[name] = {
                role: plan_role(question, role, cache, compat=mode == "compat")
                for role in ROLES[question.serving_mode]
            }
        except AisimError as error:
            errors[name] = error
    if not plans and errors:
        raise next(iter(errors.values()))
    unions = compile_plans((p for own in plans.values() for p in own.values()), cache)
    results = []
    for name, own in plans.items():
        question = questions[name]
        pools = {role: view(plan, unions, cache) for role, plan in own.items()}
        evaluate = evaluate_aggregated
        if question.serving_mode == "disagg":
            evaluate = evaluate_disaggregated
        evaluation = evaluate(question, *pools.values(), compat=mode == "compat")
        ranked = rank(
            question,
            evaluation.candidates,
            top_n=top_n,
            strict_sla=strict_sla,
            load=load,
            compat=mode == "compat",
        )
        failure = None
        if not ranked.candidates.size:
            failure = describe_failure(question, evaluation)
        results.append(
            ExperimentResult(
                name=name,
                question=question,
                lists={role: plan.lists for role, plan in own.items()},
                evaluation=evaluation,
                ranked=ranked,
                failure=failure,
            )
        )
    return SweepResult(
        experiments=tuple(results),
        failures={name: str(error) for name, error in errors.items()},
        top_n=top_n,
        by_load=load is not None,
        compat=mode == "compat",
    )


def _require_two_phases(question: Experiment) -> None:
    """Disaggregated serving has a prefill and a decode worker, and work for both."""
    if question.serving_mode != "disagg":
        return
    if question.osl < 2:
        raise InvalidInputError(
            f"osl={question.osl}: disaggregated serving needs a decode phase of at least "
            "2 output tokens; raise osl or serve aggregated"
        )
    if question.total_gpus < 2:
        raise InvalidInputError(
            f"total_gpus={question.total_gpus}: disaggregated serving needs at least 2 "
            "GPUs; raise it or serve aggregated"
        )


def _require_context(question: Experiment) -> None:
    what = f"isl={question.isl} and osl={question.osl}"
    for model in dict.fromkeys((question.model, question.decode_model)):
        if model is not None:
            check_context(load_model(model), question.isl + question.osl, what)


def require_answer(result: SweepResult) -> SweepResult:
    """`result`, or InfeasibleError with every experiment's sentence."""
    if any(e.failure is None for e in result.experiments):
        return result
    sentences = dict.fromkeys(
        [e.failure.sentence for e in result.experiments if e.failure]
    )
    raise InfeasibleError("; ".join(sentences))
