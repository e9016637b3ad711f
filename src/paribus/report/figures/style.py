"""The look of all figures: the colour of an arm, axes, sizes, and how a figure is written down.

Each arm has one colour everywhere (Okabe & Ito 2008: safe for colour-blind readers), and a dash, so
that a print without colour can be read as well. Text is `currentColor`: it follows the page into
dark mode, and `Figure.printed` makes it black.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable
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
)
SHADES = (1.0, 0.6)  # of the same colours, where there are more arms than colours
DASHES = ([1, 0], [6, 4], [2, 3])  # lines that coincide are still told apart

LOG_FROM = 5  # positive values that span more start on a logarithmic axis
SMALL = 1e-3  # values from below this are written 3e-4
WIDTH, HEIGHT = 620, 280
PANEL, PANEL_HEIGHT = 150, 170
PANEL_ROOM = 66  # pixels that the axis of a panel takes
WIDER = 1.4  # times its width is the most that a panel is stretched to
ROUND_UP = 0.35  # a panel that fits but for so much of it is made narrower
MOST_PANELS = 30
LABEL_PIXELS = 150
LABEL_CHARACTERS = 22  # of a line beside an axis; longer names are broken
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
}


@dataclass(frozen=True)
class Figure:
    """One figure: the page shows it, the PDF prints it.

    Attributes:
        name: unique within a report; of its files too.
        section: of the page: "tuning", "endpoints", "along" (training), "stability",
            "diagnostics" or "evaluation".
        title: a few words, for a heading.
        caption: what is drawn, in words that stand without the picture.
        chart: reads the dataset called `name`.
        rows: that dataset; with the keys `arm` and `seed` where rows belong to one.
        log: whether the page offers a logarithmic axis.
        panel: width of one panel of a facet; None where there is only one.
        room: what the axis of a panel takes, in pixels.
        wide: whether it wants the width of two.
        stretch: whether its height goes with its width.
        in_text: whether it stands in the PDF; the page has all.
    """

    name: str
    section: str
    title: str
    caption: str
    chart: Any = field(repr=False)
    rows: list[dict[str, Any]] = field(repr=False)
    log: bool = False
    panel: int | None = None
    room: int = PANEL_ROOM
    wide: bool = False
    stretch: bool = True
    in_text: bool = False

    @cached_property
    def definition(self) -> dict[str, Any]:
        """Return Vega-Lite without the data, which the page keeps in another form."""
        return self.chart.to_dict(validate=False) | {"config": CONFIG}

    def with_data(self) -> Any:
        """Return the chart with the look of ours and the data that it reads."""
        made = self.chart.copy(deep=False)
        made["config"], made["datasets"] = CONFIG, {self.name: self.rows}
        made["description"] = self.caption
        return made

    def printed(self, width: int) -> dict[str, Any]:
        """Return Vega-Lite with its data, `width` pixels wide in all, in black on white."""
        text = json.dumps(self.definition).replace(TEXT, PRINTED_TEXT)
        definition = json.loads(text)
        definition["datasets"] = definition.get("datasets", {}) | {self.name: self.rows}
        definition["config"] |= {"font": PRINTED_FONT, "background": "white"}
        columns = self._legend_columns(width)
        label = width // columns - SYMBOL_PIXELS  # nothing of a name is cut off
        definition["config"]["legend"] |= {"columns": columns, "labelLimit": label}
        definition["config"]["axis"]["labelLimit"] = max(LABEL_PIXELS, int(width * LABEL_SHARE))
        if self.panel:
            fit = max(1, int(width / (self.panel + self.room) + ROUND_UP))
            n = len({row[definition["facet"]["field"]] for row in self.rows})
            columns = math.ceil(n / math.ceil(n / fit))  # no row much shorter than the others
            definition["columns"] = columns
            widest = int(WIDER * self.panel)
            definition["spec"]["width"] = min(widest, width // columns - self.room)
        else:
            if self.stretch:
                definition["height"] = definition["height"] * width // WIDTH
            definition |= {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
        return definition

    def _legend_columns(self, width: int) -> int:
        """Return how many fit beside each other with the longest name of an arm."""
        longest = max((len(str(row.get("arm", ""))) for row in self.rows), default=0)
        label = longest * CHARACTER_PIXELS
        return max(1, min(LEGEND_COLUMNS, (width - PANEL_ROOM) // (label + SYMBOL_PIXELS)))


def colours(study: Study) -> dict[str, str]:
    """Return the colour of every arm; what others are compared with is grey."""
    palette, count = {}, 0
    for arm in study.arms:
        if arm == study.baseline:
            palette[arm] = BASELINE_COLOUR
            continue
        round_, place = divmod(count, len(ARM_COLOURS))
        palette[arm] = _shaded(ARM_COLOURS[place], SHADES[round_ % len(SHADES)])
        count += 1
    return palette


def arm_colour(study: Study, *, legend: bool = True, line: bool = True) -> alt.Color:
    """Return colour by arm, with lines or dots in the legend, which names all arms."""
    called, palette = study.called, colours(study)
    scale = alt.Scale(
        domain=[called[arm] for arm in study.arms], range=[palette[arm] for arm in study.arms]
    )
    if not legend:
        return alt.Color("arm:N", title=None, scale=scale, legend=None)
    look = _LINE if line else _DOT
    return alt.Color("arm:N", title=None, scale=scale, legend=look)


def arm_dash(study: Study) -> alt.StrokeDash:
    """Return dash by arm: lines that coincide, or are printed without colour, are told apart."""
    called = study.called
    ranks = range(len(called))
    dashes = [DASHES[0] if i == 0 else DASHES[(i - 1) % len(DASHES)] for i in ranks]
    scale = alt.Scale(domain=list(called.values()), range=dashes)
    # Colour and dash share a legend only where it is the same.
    return alt.StrokeDash("arm:N", title=None, scale=scale, legend=_LINE)


def hover(*fields: str | alt.Tooltip) -> list[alt.Tooltip]:
    """Return what is told of the mark under the pointer.

    Channels are made by name, here and in all figures: to find the class of a bare string, Altair
    reads the schemas of all its classes anew, which would take half the time of drawing.
    """
    return [alt.Tooltip(field) if isinstance(field, str) else field for field in fields]


def wrapped(title: str, characters: int = AXIS_CHARACTERS) -> list[str]:
    """Return a title in lines of at most so many characters: a longer one would be cut off."""
    return textwrap.wrap(title, characters)


def in_lines(labels: Iterable[str], characters: int, most_lines: int = 2) -> Any:
    """Return the expression that breaks long labels into at most so many lines; Undefined where
    none is long."""
    broken = {
        label: textwrap.wrap(
            label,
            characters,
            max_lines=most_lines,
            placeholder="\N{HORIZONTAL ELLIPSIS}",
        )
        for label in labels
        if len(label) > characters
    }
    return f"({json.dumps(broken)})[datum.label] || (datum.label)" if broken else alt.Undefined


def is_share(title: str) -> bool:
    """Return whether the numbers of an axis are shares, which are shown as per cent."""
    return title.endswith(SHARES)


def share_axis(title: str) -> tuple[str, dict[str, Any]]:
    """Return the title of an axis, and how its numbers are written: shares as per cent."""
    if not is_share(title):
        return title, {}
    return f"{title.removesuffix(SHARES)} (%)", {"labelExpr": PER_CENT}


def over(
    values: str, title: str, *, zero: bool = False, axis: dict[str, Any] | None = None
) -> alt.Y:
    """Return a vertical axis that need not begin at zero."""
    title, written = share_axis(title)
    looks = written | (axis or {})
    drawn = alt.Axis(**looks) if looks else alt.Undefined
    return alt.Y(values, title=title, scale=alt.Scale(zero=zero), axis=drawn)


def mean_line(
    base: alt.Chart, y: alt.Y, study: Study, told: list[alt.Tooltip], **more: Any
) -> alt.Chart:
    """Return the thick line of each arm, dashed by arm."""
    line = base.mark_line(strokeWidth=2.2, **more)
    return line.encode(y=y, strokeDash=arm_dash(study), tooltip=told)


def seed_lines(base: alt.Chart, y: alt.Y, **more: Any) -> alt.Chart:
    """Return a thin line for each seed."""
    line = base.mark_line(strokeWidth=0.7, opacity=0.45, **more)
    return line.encode(y=y, detail=alt.Detail("seed:N"))


def panels(
    chart: Any,
    facet: alt.Facet,
    name: str,
    *,
    own: str,
    labels: Iterable[str] = (),
    columns: int = 3,
    width: int = PANEL,
    height: int = PANEL_HEIGHT,
) -> Any:
    """Return a panel for each value of a field, each with its `own` axis, "x" or "y". Of `labels`,
    which stand above the panels, long ones are broken.

    The facet has the data: a layer with data of its own would draw all of it in every panel.
    """
    panel = chart.properties(width=width, height=height)
    broken = in_lines(labels, width // CHARACTER_PIXELS)
    if broken is not alt.Undefined:
        facet = facet.copy()
        facet["header"] = alt.Header(labelExpr=broken)
    faceted = panel.facet(facet=facet, columns=columns, data=alt.NamedData(name))
    return faceted.resolve_scale(**{own: "independent"})


_LINE = alt.Legend(symbolType="stroke", symbolStrokeWidth=2.5, symbolSize=250)
_DOT = alt.Legend(symbolType="circle")


def figure_name(column: str) -> str:
    """Return a name of files and of data for what is drawn of `column`, whatever its letters."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", column)


def rounded(value: float) -> float:
    """Return five digits: what a picture can show, and a page need not carry more."""
    return float(f"{value:.5g}")


def _shaded(colour: str, share: float) -> str:
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * channel):02x}" for channel in channels)
