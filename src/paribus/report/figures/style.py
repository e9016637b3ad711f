"""The class `Figure`, and the common style of figures: colours, axes and sizes.

Each arm has the same colour (Okabe & Ito 2008: safe for colour-blind readers) and dash pattern in
all figures, so figures are readable when printed without colour. Text has the colour
`currentColor`, which follows the page's dark mode; `Figure.printed` replaces it with black.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import altair as alt

from paribus.study import Study

BASELINE_COLOUR = "#7a7a7a"
ARM_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8c6d31",
    "#7b4ab5",
    "#6b8e23",
    "#e377c2",
    "#17a2b8",
    "#9a3324",
    "#4d5d53",
    "#b8860b",
    "#5c6bc0",
    "#a0a000",
)
DASHES = ([1, 0], [6, 4], [2, 3])  # coinciding lines can still be distinguished

LOG_FROM = 5  # positive values that span more start on a logarithmic axis
WIDTH, HEIGHT = 620, 220
PANEL, PANEL_HEIGHT = 150, 170
PANEL_ROOM = 66  # pixels that the axis of a panel takes
LABEL_PIXELS = 150
LABEL_CHARACTERS = 22  # of a line beside an axis; longer names are broken
BELOW_CHARACTERS = 12  # of a line of a name below a figure
AXIS_CHARACTERS = 26  # of a line of a title beside a panel
LABEL_SHARE = 0.6  # of the width of a print, at most, for the labels of an axis
LEGEND_COLUMNS = 4
CHARACTER_PIXELS, SYMBOL_PIXELS = 7, 40  # of a legend

SHARES = " (share)"  # the end of the title of an axis of shares
PER_CENT = "format(100 * datum.value, '.4~g')"

TEXT = "currentColor"
PRINTED_TEXT = "#222222"
# The font that vl-convert brings along, so that labels are measured alike everywhere.
PRINTED_FONT = "Liberation Sans"


# The look of every figure, as Vega-Lite's config. Altair would copy the chart for each part of it.
_TEXT = {"labelColor": TEXT, "titleColor": TEXT}
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "axis": _TEXT
    | {
        "domainColor": TEXT,
        "tickColor": TEXT,
        "gridColor": TEXT,
        "gridOpacity": 0.12,
        "domainOpacity": 0.4,
        "tickOpacity": 0.4,
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "labelLimit": LABEL_PIXELS,
    },
    "header": _TEXT | {"labelFontSize": 12, "labelLimit": PANEL},
    "legend": _TEXT
    | {
        "labelFontSize": 11,
        "labelLimit": LABEL_PIXELS,
        "orient": "top",
        "symbolOpacity": 1,
        "columns": LEGEND_COLUMNS,
    },
    "view": {"stroke": None},
    "mark": {"tooltip": True},
}


Row = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """Figure for the page and the PDF.

    Attributes:
        name: unique name within a report, also used for file names.
        section: page section: "tuning", "seeds", "endpoints", "along" (training), "stability",
            "diagnostics" or "evaluation".
        title: short heading.
        caption: explanation of the figure.
        chart: Altair chart that refers to the dataset `name`.
        rows: rows of the dataset, with the keys `arm` and `seed` where they apply.
        log: whether the page offers a logarithmic axis.
        in_text: whether to include the figure in the PDF. The page includes all figures.
    """

    name: str
    section: str
    title: str
    caption: str
    chart: Any = field(repr=False)
    rows: list[Row] = field(repr=False)
    log: bool = False
    in_text: bool = False

    @property
    def panel(self) -> int | None:
        """Width of a panel in pixels, or None if the figure has no panels."""
        return PANEL if isinstance(self.chart, alt.FacetChart) else None

    @property
    def wide(self) -> bool:
        """True if the figure spans two columns, as figures with more than two panels do."""
        return self.panel is not None and len({row["part"] for row in self.rows}) > 2

    @property
    def text(self) -> str:
        """Title and caption, used as alternative text of the image."""
        return f"{self.title}. {self.caption}".strip()

    @cached_property
    def definition(self) -> dict[str, Any]:
        """Vega-Lite specification without data, which the page stores separately."""
        return self.chart.to_dict(validate=False) | {"config": CONFIG}

    def with_data(self) -> Any:
        """Return a copy of the Altair chart that includes style and data."""
        chart = self.chart.copy(deep=False)
        chart["config"], chart["datasets"] = CONFIG, {self.name: self.rows}
        chart["description"] = self.text
        return chart

    def printed(self, width: int) -> dict[str, Any]:
        """Return a Vega-Lite specification, including data, for print in black on white.

        Args:
            width: width of the figure in pixels.
        """
        text = json.dumps(self.definition).replace(TEXT, PRINTED_TEXT)
        definition = json.loads(text)
        definition["datasets"] = definition.get("datasets", {}) | {self.name: self.rows}
        definition["config"] |= {"font": PRINTED_FONT, "background": "white"}
        label = width // 2 - SYMBOL_PIXELS
        definition["config"]["legend"] |= {"columns": 2, "labelLimit": label}
        definition["config"]["axis"]["labelLimit"] = max(LABEL_PIXELS, int(width * LABEL_SHARE))
        if self.panel:
            columns = max(1, width // (self.panel + PANEL_ROOM))
            definition["columns"] = columns
            definition["spec"]["width"] = width // columns - PANEL_ROOM
        else:
            definition |= {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
        return definition


def colours(study: Study) -> dict[str, str]:
    """Map arm names to colours, with grey for the baseline."""
    palette = {study.baseline: BASELINE_COLOUR}
    for count, arm in enumerate(arm for arm in study.arms if arm != study.baseline):
        palette[arm] = ARM_COLOURS[count % len(ARM_COLOURS)]
    return palette


def arm_colour(study: Study, *, legend: bool = True, line: bool = True) -> alt.Color:
    """Create a colour encoding by arm, with a legend of lines or dots."""
    called, palette = study.called, colours(study)
    scale = alt.Scale(domain=list(called.values()), range=[palette[arm] for arm in called])
    look = (_LINE if line else _DOT) if legend else None
    return alt.Color("arm:N", title=None, scale=scale, legend=look)


def arm_dash(study: Study) -> alt.StrokeDash:
    """Create a dash encoding by arm, which distinguishes lines without colour."""
    called = list(study.called.values())
    dashes = [DASHES[0], *(DASHES[i % len(DASHES)] for i in range(len(called) - 1))]
    # Colour and dash share a legend only where it is the same.
    scale = alt.Scale(domain=called, range=dashes)
    return alt.StrokeDash("arm:N", title=None, scale=scale, legend=_LINE)


def in_lines(labels: Iterable[str], characters: int, most_lines: int = 2) -> Any:
    """Create a Vega expression that wraps long labels, or return Undefined if all are short."""
    broken = {
        label: textwrap.wrap(
            label, characters, max_lines=most_lines, placeholder="\N{HORIZONTAL ELLIPSIS}"
        )
        for label in labels
        if len(label) > characters
    }
    return f"({json.dumps(broken)})[datum.label] || (datum.label)" if broken else alt.Undefined


def value_axis(
    field: str, title: str, *, scale: Any = None, channel: Any = alt.Y, **axis: Any
) -> Any:
    """Create an axis for values, which shows shares in per cent.

    By default, the axis is vertical and need not include zero.
    """
    if title.endswith(SHARES):
        title = f"{title.removesuffix(SHARES)} (%)"
        axis["labelExpr"] = PER_CENT
    axis.setdefault("tickCount", 5)
    lines = textwrap.wrap(title, AXIS_CHARACTERS)
    return channel(field, title=lines, scale=scale or alt.Scale(zero=False), axis=alt.Axis(**axis))


def names_below(labels: Iterable[str], field: str, *, sort: Any = None) -> alt.X:
    """Create a horizontal axis of names in the given order, wrapping long names."""
    labels = list(labels)
    broken = in_lines(labels, BELOW_CHARACTERS, 3)
    axis = alt.Axis(labelAngle=0, labelLimit=90, labelExpr=broken)
    return alt.X(f"{field}:N", title=None, sort=sort or labels, axis=axis)


def chart_of(name: str | None) -> alt.Chart:
    """Create a chart of the dataset `name`.

    If `name` is None, the chart is a panel that gets its data from a facet.
    """
    return alt.Chart(alt.NamedData(name)) if name else alt.Chart()


def zero_line(*, across: bool = True) -> alt.Chart:
    """Create a chart with a reference line at zero, horizontal if `across`."""
    rule = alt.Chart().mark_rule(color=TEXT, opacity=0.5)
    return rule.encode(y=alt.datum(0)) if across else rule.encode(x=alt.datum(0))


def lines(
    study: Study,
    rows: Sequence[Row],
    x: alt.X,
    title: str,
    *,
    name: str | None = None,
    scale: Any = None,
    **axis: Any,
) -> list[alt.Chart]:
    """Create two chart layers: a thin line per seed, and a thick line for the mean of each arm.

    Rows have the keys `arm`, `x` and `value`, and `part` in panels. Rows with the keys `low` and
    `high` are means; the first layer is then a band. Rows with the key `point` are averaged over
    seeds by point index instead of by x.
    """
    base = chart_of(name).encode(x=x, color=arm_colour(study))
    is_single = len({row["x"] for row in rows}) == 1  # a line of one point draws nothing
    options = {"y": value_axis("value:Q", title, scale=scale, **axis)}
    if "point" in rows[0]:
        options["order"] = alt.Order("point:Q")
        each = {"x": "mean(x)", "groupby": ["arm", "part", "point"]}
    else:
        each = {"groupby": ["arm", "part", "x", "order"]}
    means = base.transform_aggregate(value="mean(value)", **each)  # type: ignore[arg-type]
    mean = means.mark_line(strokeWidth=2.2, point=is_single).encode(
        strokeDash=arm_dash(study), **options
    )
    if "low" in rows[0]:
        low = value_axis("low:Q", title, scale=scale, **axis)
        band = base.mark_area(opacity=0.14).encode(y=low, y2=alt.Y2("high"))
        return [band, mean]
    thin = base.mark_line(strokeWidth=0.7, opacity=0.45, point=is_single).encode(
        detail=alt.Detail("seed:N"), **options
    )
    return [thin, mean]


def panels(
    chart: Any,
    labels: Sequence[str],
    name: str,
    *,
    own: str,
) -> Any:
    """Facet a chart by the field `part`, with one panel for each value in `labels`.

    The facet contains the data, because a layer with separate data would plot all rows in every
    panel.

    Args:
        own: axis whose scale is independent in each panel, "x" or "y".
    """
    facet = alt.Facet("part:N", title=None, sort=list(labels))
    broken = in_lines(labels, PANEL // CHARACTER_PIXELS)
    if broken is not alt.Undefined:
        facet["header"] = alt.Header(labelExpr=broken)
    panel = chart.properties(width=PANEL, height=PANEL_HEIGHT)
    faceted = panel.facet(facet=facet, columns=3, data=alt.NamedData(name))
    return faceted.resolve_scale(**{own: "independent"})


_LINE = alt.Legend(symbolType="stroke", symbolStrokeWidth=2.5, symbolSize=250)
_DOT = alt.Legend(symbolType="circle")


def figure_name(column: str) -> str:
    """Convert a column name to a figure name that is safe for files and datasets."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", column)


def rounded(value: float) -> float:
    """Round a value to five significant digits, to keep the page small."""
    return float(f"{value:.5g}")
