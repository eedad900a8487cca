"""Speed of replays, warm, on one core: single scenarios, long ones, and sweeps.

python experiments/bench/replay.py [--reference AISIMULATE] [--only WORDS] [--json FILE]

Times are CPU seconds of `replay_scenarios` without logs, requests made beforehand. The
part outside the compiled programs (packing lanes, unpacking answers) is given beside
them. Ratios are against the published cost of the reference's engine, and with its
command (`aisimulate`) also against that: CPU of a process of many requests less that of
a process of one, which leaves its start-up out and its report in.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

from replay_cases import Case, cases, with_requests
from timing import Row, command_seconds, one_core, report, seconds


REFERENCE_REQUESTS = 20_000  # enough to stand out of the noise of a process's start
REFERENCE_LANES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", help="the reference's command")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--json")
    options = parser.parse_args()
    one_core()
    program = ProgramTime()
    rows = []
    for case in cases():
        if options.only in case.what:
            print(f"measuring {case.what} ...", file=sys.stderr, flush=True)
            rows += measured(case, program, options.reference)
    if options.only in "a report of closed loop 64":
        rows.append(reported())
    report("replay, one core", rows, options.json)


class ProgramTime:
    """CPU seconds that compiled programs of lanes took since the last `restart`.

    Stands between the engines and their programs, so it must exist before any of them
    is built.
    """

    def __init__(self) -> None:
        import jax

        from aisim_jax.replay import _lanes

        self.seconds = 0.0
        build = _lanes._program

        def timed_build(*words: Any):
            program = build(*words)

            def timed(*arrays: Any):
                start = time.process_time()
                answer = jax.block_until_ready(program(*arrays))
                self.seconds += time.process_time() - start
                return answer

            return timed

        _lanes._program = timed_build

    def restart(self) -> None:
        self.seconds = 0.0


def scenarios(predictions: list[dict[str, Any]]) -> list[Any]:
    """Requests and deployments of prediction files."""
    from aisim_jax.config import PredictionConfig
    from aisim_jax.replay import build_workload, resolve_deployment

    made = []
    for one in predictions:
        config = PredictionConfig.model_validate(one)
        resolved = resolve_deployment(config)
        made.append((build_workload(config, resolved), resolved.deployment))
    return made


def measured(case: Case, program: ProgramTime, command: str | None) -> list[Row]:
    """The whole call, its share outside the programs, and the ratios."""
    from aisim_jax.replay import replay_scenarios

    given = scenarios(list(case.predictions))
    requests = sum(workload.size for workload, _ in given)
    name = f"{case.what}, {len(given)} x {requests // len(given):,}"
    best_inside = float("inf")
    answers = []

    def once() -> None:
        nonlocal answers, best_inside
        program.restart()
        answers = replay_scenarios(given, log=False)
        best_inside = min(best_inside, program.seconds)

    first, best = seconds(once, 3 if requests >= 50_000 else 7)
    events = sum(answer.telemetry.get("events", 0.0) for answer in answers)
    preempted = sum(answer.preemptions for answer in answers)
    published = case.published_per_s
    rows = [
        Row(
            name,
            best,
            "s",
            first,
            "published reference" if published else "",
            requests / best / published if published else None,
        ),
        Row(f"  requests/s [{answers[0].engine}]", requests / best, "1/s"),
        Row("  outside compiled programs", max(best - best_inside, 0.0), "s"),
    ]
    if events:
        rows.append(Row("  events", events, "events"))
        rows.append(Row("  per event, all in", best / events * 1e6, "us"))
    if preempted:
        rows.append(Row("  preemptions", preempted, ""))
    if case.target_s is not None:
        margin = case.target_s / best
        rows.append(Row("  target", case.target_s, "s", None, "(1 = just met)", margin))
    if command is not None and case.reference:
        rate = reference_rate(command, case)
        rows.append(
            Row(
                "  reference's command",
                rate,
                "1/s",
                None,
                "its command",
                requests / best / rate,
            )
        )
    return rows


def reference_rate(command: str, case: Case) -> float:
    """Requests per CPU second of the command over a few of the case's lanes."""
    lanes = list(case.predictions)
    step = max(len(lanes) // REFERENCE_LANES, 1)
    chosen = lanes[step // 2 :: step][:REFERENCE_LANES]
    spent = 0.0
    for lane in chosen:
        many = _command_cpu(
            command, json.dumps(with_requests(lane, REFERENCE_REQUESTS))
        )
        spent += many - _command_cpu(command, json.dumps(with_requests(lane, 1)))
    return len(chosen) * (REFERENCE_REQUESTS - 1) / spent


@cache
def _command_cpu(command: str, prediction: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prediction.yaml"  # JSON is YAML
        path.write_text(prediction)
        words = [command, "predict", "-c", str(path), "--format", "json"]
        words += ["--output-dir", str(Path(folder) / "out")]
        return command_seconds(words)[1]


def reported() -> Row:
    """What `aisim predict` adds: logs, exact percentiles over every gap of tokens."""
    from aisim_jax.config import PredictionConfig
    from aisim_jax.replay import predict

    case = cases()[0]
    config = PredictionConfig.model_validate(case.predictions[0])
    first, best = seconds(partial(predict, config), 5)
    return Row("a report of closed loop 64, 1 x 1,000", best, "s", first)


if __name__ == "__main__":
    main()
