"""The compatible sweep as plain loops: slow, obvious, one point at a time."""


def visited(batches, budgets, isl, osl, stops):
    """Points (batch, ctx) that the aggregated loop evaluates.

    `stops(batch, ctx)` says that an evaluated point does not fit.
    """
    done, seen = [], set()
    for batch in batches:
        for ctx in budgets:
            prompts = -(-ctx // isl)
            if batch < prompts or (batch > 1 and batch - prompts < 1):
                break
            share = isl * batch / ctx / osl
            if share > 1:
                slices = batch // share
                if slices > 1 and slices in seen:
                    continue
                seen.add(slices)
            done.append((batch, ctx))
            if stops(batch, ctx):
                break
    return done


def best_rows(rows, targets, count):
    """Union over targets of the `count` best rows of each group.

    `rows` are (group, score, ttft, tpot) with distinct scores; returns their indices.
    """
    kept = set()
    for ttft, tpot in targets:
        for group in {row[0] for row in rows}:
            good = [
                (score, index)
                for index, (own, score, first, rest) in enumerate(rows)
                if own == group and first <= ttft and rest <= tpot
            ]
            kept |= {index for _, index in sorted(good, reverse=True)[:count]}
    return kept


def match(prefill, decode, box, allowed, degradations):
    """(P, D) of one pair: rates and GPUs per worker, first maximum, D outermost."""
    best, shape = float("-inf"), None
    for d in range(1, box[1] + 1):
        for p in range(1, box[0] + 1):
            gpus = p * prefill[1] + d * decode[1]
            if gpus not in allowed:
                continue
            rate = min(
                prefill[0] * p * degradations[0], decode[0] * d * degradations[1]
            )
            if rate / gpus > best:
                best, shape = rate / gpus, (p, d)
    return shape


def disaggregated(prefill, decode, targets, osl, box, allowed, same_tp):
    """(prefill row, decode row, P, D) that the compatible sweep keeps.

    Rows are dicts: label, tp, gpus, concurrency, ttft, tpot, rate, rate_per_gpu.
    """
    kept = {}
    for ttft, tpot in targets:
        fast = [r for r in prefill if 1.8 * r["ttft"] < ttft]
        fast = sorted(fast, key=lambda r: (-r["rate_per_gpu"], r["concurrency"]))[:32]
        good = [r for r in decode if 0 < r["tpot"] < tpot]
        found = []
        for label in sorted({r["label"] for r in good}):
            rows = [r for r in good if r["label"] == label]
            rows = sorted(rows, key=lambda r: -r["rate_per_gpu"])[:16]
            best = None
            for d_row in rows:
                for p_row in fast:
                    if same_tp and d_row["tp"] != p_row["tp"]:
                        continue
                    shape = match(
                        (p_row["rate"], p_row["gpus"]),
                        (d_row["rate"], d_row["gpus"]),
                        box,
                        allowed,
                        (0.9, 0.92),
                    )
                    if shape is None:
                        continue
                    gpus = shape[0] * p_row["gpus"] + shape[1] * d_row["gpus"]
                    rate = min(
                        p_row["rate"] * shape[0] * 0.9, d_row["rate"] * shape[1] * 0.92
                    )
                    key = (rate * osl / gpus, -gpus)
                    if best is None or key > best[0]:
                        best = (key, p_row, d_row, shape)
            if best:
                found.append(best)
        found.sort(key=lambda item: -round(item[0][0], 3))
        for _, p_row, d_row, shape in found[:5]:
            kept[prefill.index(p_row), decode.index(d_row), *shape] = None
    return set(kept)


def front(points):
    """Indices of the non-dominated points; of equal points the first."""
    keep = []
    for index, (x, y) in enumerate(points):
        beaten = any(
            (u >= x and v >= y and (u > x or v > y))
            or ((u, v) == (x, y) and other < index)
            for other, (u, v) in enumerate(points)
        )
        if not beaten:
            keep.append(index)
    return sorted(keep, key=lambda index: points[index][0])
