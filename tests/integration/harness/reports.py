"""What a report's document says, wherever its rows came from."""


def _number(value):
    return round(value, 9) if isinstance(value, float) else value


def canonical(report):
    """Numbers of lists become what they stand for, and lists lose their order: equal documents say the same."""
    environments = [e["text"] for e in report["environments"]]
    problems = [p["text"] for p in report["problems"]]
    places = [(p["node"], p["gpu_uuid"], p["driver"], p["cuda"]) for p in report["places"]]
    meaning = {
        "environment": environments, "problem": problems, "place": places,
        **dict.fromkeys(("winner", "stock", "from_winner", "to_winner"), report["candidates"]),
    }  # fmt: skip

    def value(key, v):
        if key in meaning and isinstance(v, int):
            return meaning[key][v]
        if key == "places":
            return sorted(places[i] for i in v)
        if isinstance(v, dict):
            return record(v)
        if isinstance(v, list):
            return sorted((repr(value(None, each)) for each in v))
        return _number(v)

    def record(d):
        if "columns" in d:
            rows = [{c: value(c, v) for c, v in zip(d["columns"], values)} for values in d["values"]]
            return {**{k: value(k, v) for k, v in d.items() if k not in ("columns", "values")},
                    "rows": sorted(map(repr, rows))}  # fmt: skip
        return {k: value(k, v) for k, v in d.items()}

    left_out = ("generated", "environments", "problems", "places", "candidates")
    return {k: value(k, v) for k, v in report.items() if k not in left_out}


def differences(a, b, path=""):
    """Where two canonical documents differ, a few of the places."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [d for k in sorted({*a, *b}) for d in differences(a.get(k), b.get(k), f"{path}.{k}")][:20]
    if isinstance(a, list) and isinstance(b, list):
        return [f"{path}: {x}" for x in sorted(set(a) ^ set(b))[:6]] or ([] if a == b else [f"{path}: repeated rows"])
    return [] if a == b else [f"{path}: {a!r} is not {b!r}"]
