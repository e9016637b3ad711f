"""The picture at the top of the README, from the records of a study.

python docs/make_picture.py results/embedding-norm docs/embedding-norm.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

import vl_convert

import paribus
from paribus.report import figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    results = paribus.load_results(arguments.results)
    analysis = paribus.analyse(results)
    curves = figures.trend(results, "train_loss")
    pairs = figures.seed_pairs(analysis, results.study.primary.metric)
    if curves is None or pairs is None:
        raise SystemExit(f"{arguments.results} has no finished pair of trials")
    left, right = curves.printed(420), pairs.printed(460)
    left.pop("autosize")
    picture = {
        "$schema": left.pop("$schema"),
        "config": left.pop("config"),
        "datasets": left.pop("datasets") | right.pop("datasets"),
        "hconcat": [
            left | {"width": 420, "height": 260},
            {key: value for key, value in right.items() if key not in ("$schema", "config")},
        ],
        "resolve": {"scale": {"color": "independent"}, "legend": {"color": "independent"}},
        "spacing": 40,
    }
    svg = vl_convert.vegalite_to_svg(picture)
    arguments.picture.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
