//! Charts as SVG, drawn by `charts-rs`: once for light pages and once for dark ones.
//!
//! Must not know: what the values are.

use charts_rs::{
    AxisScale, BarChart, ChartBase, Color, HeatmapChart, HorizontalBarChart, LegendCategory, LineChart,
    Series, get_theme,
};

use super::{Chart, Kind, ReportError};

/// Wide enough for a page; a phone scrolls.
const WIDTH: f32 = 960.0;
const HEIGHT: f32 = 360.0;
/// A row of a heat map, and what is above and below.
const ROW: f32 = 26.0;
/// A lying bar, what is between two groups of them, and legend and axis.
const BAR: f32 = 17.0;
const GAP: f32 = 14.0;
const AROUND: f32 = 80.0;
const FONT: f32 = 12.0;
/// Letters of a place's name that fit below it, one place beside the other.
const LETTERS: usize = 110;
/// Colours that people who see red and green alike can tell apart (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d1f", "#7f7f7f"];

/// The chart, for light or dark pages.
pub(super) fn svg(chart: &Chart, dark: bool) -> Result<String, ReportError> {
    let drawn = match chart.kind {
        Kind::Bars if letters(chart) > LETTERS => lying_bars(chart, dark).svg(),
        Kind::Bars => bars(chart, dark).svg(),
        Kind::Lines | Kind::LinesLog => lines(chart, dark).svg(),
        Kind::Heat => heat(chart, dark).svg(),
    };
    drawn.map_err(|source| ReportError::Chart { chart: chart.title.clone(), source })
}

fn theme(dark: bool) -> &'static str {
    if dark { charts_rs::THEME_DARK } else { charts_rs::THEME_LIGHT }
}

fn series(chart: &Chart) -> Vec<Series> {
    #[allow(clippy::cast_possible_truncation)]
    let values =
        |values: &[Option<f64>]| values.iter().map(|value| value.map(|value| value as f32)).collect();
    chart.series.iter().map(|(name, all)| Series::new_nullable(spaced(name), values(all))).collect()
}

/// The library measures names in a narrow font; in a wide one they would run into their neighbours.
fn spaced(name: &str) -> String {
    let missing = 3 + name.chars().count() / 5;
    format!("{name}{}", "\u{a0}".repeat(missing))
}

/// What all charts have in common.
fn dress(base: &mut ChartBase, dark: bool) {
    base.width = WIDTH;
    base.height = HEIGHT;
    base.background_color = Color::transparent();
    base.font_family = "system-ui, sans-serif".into();
    base.series.colors = COLOURS.map(Color::from).to_vec();
    base.legend.font.size = FONT;
    base.x_axis.font.size = FONT;
    // The last figure of an axis is as wide on both sides of its line.
    base.margin.right = FONT * 1.5;
    base.series.label.font.size = FONT;
    base.series.label.font.color = get_theme(theme(dark)).title.font.color;
    base.tooltip.show = true;
}

fn letters(chart: &Chart) -> usize {
    chart.places.iter().map(|place| place.chars().count()).sum()
}

/// Figures beside bars are read as long as there is room for them.
fn figures(base: &mut ChartBase, chart: &Chart, room: bool) {
    base.legend.category = LegendCategory::Rect;
    base.series_list.iter_mut().for_each(|series| series.label_show = room);
    let highest =
        chart.series.iter().flat_map(|(_, values)| values.iter().flatten()).copied().fold(0.0, f64::max);
    base.series.label.formatter = if highest < 100.0 { "{:.1}" } else { "{:.0}" }.into();
}

fn bars(chart: &Chart, dark: bool) -> BarChart {
    let mut drawn = BarChart::new_with_theme(series(chart), chart.places.clone(), theme(dark));
    dress(&mut drawn.base, dark);
    drawn.y_axis_configs.iter_mut().for_each(|axis| axis.font.size = FONT);
    figures(&mut drawn.base, chart, chart.places.len() * chart.series.len() <= 24);
    drawn
}

/// Bars beside long names, the first place at the top.
fn lying_bars(chart: &Chart, dark: bool) -> HorizontalBarChart {
    let mut turned = chart.clone();
    turned.places = chart.places.iter().rev().map(|place| spaced(place)).collect();
    turned.series.iter_mut().for_each(|(_, values)| values.reverse());
    let mut drawn = HorizontalBarChart::new_with_theme(series(&turned), turned.places.clone(), theme(dark));
    dress(&mut drawn.base, dark);
    figures(&mut drawn.base, chart, true);
    drawn.y_axis_configs.iter_mut().for_each(|axis| axis.font.size = FONT);
    #[allow(clippy::cast_precision_loss)]
    let bars = (chart.places.len() * chart.series.len()) as f32;
    #[allow(clippy::cast_precision_loss)]
    let gaps = chart.places.len() as f32;
    drawn.base.height = bars * BAR + gaps * GAP + AROUND;
    drawn
}

fn lines(chart: &Chart, dark: bool) -> LineChart {
    let mut drawn = LineChart::new_with_theme(series(chart), chart.places.clone(), theme(dark));
    dress(&mut drawn.base, dark);
    let log = chart.kind == Kind::LinesLog;
    for axis in &mut drawn.y_axis_configs {
        axis.font.size = FONT;
        axis.scale = if log { AxisScale::Log(10.0) } else { AxisScale::Linear };
        axis.min = (!log).then_some(0.0);
        if log && let Some((low, high)) = decades(chart) {
            // A line for each power of ten.
            axis.min = Some(10f32.powi(low));
            axis.max = Some(10f32.powi(high));
            axis.split_number = usize::try_from(high - low).unwrap_or(1);
        }
    }
    drawn
}

/// The powers of ten around all values.
fn decades(chart: &Chart) -> Option<(i32, i32)> {
    let values = chart.series.iter().flat_map(|(_, values)| values.iter().flatten());
    let logs: Vec<f64> = values.filter(|value| **value > 0.0).map(|value| value.log10()).collect();
    let low = logs.iter().copied().fold(f64::MAX, f64::min).floor();
    let high = logs.iter().copied().fold(f64::MIN, f64::max).ceil();
    #[allow(clippy::cast_possible_truncation)]
    let (low, high) = (low as i32, high as i32);
    (!logs.is_empty()).then_some((low, high.max(low + 1)))
}

fn heat(chart: &Chart, dark: bool) -> HeatmapChart {
    let mut cells = Vec::new();
    for (row, (_, values)) in chart.series.iter().rev().enumerate() {
        for (column, value) in values.iter().enumerate() {
            #[allow(clippy::cast_possible_truncation)]
            if let Some(value) = value {
                cells.push((row * chart.places.len() + column, value.round() as f32));
            }
        }
    }
    let rows = chart.series.iter().rev().map(|(name, _)| spaced(name)).collect();
    let mut drawn = HeatmapChart::new_with_theme(cells, chart.places.clone(), rows, theme(dark));
    dress(&mut drawn.base, dark);
    #[allow(clippy::cast_precision_loss)]
    let room = chart.series.len() as f32 * ROW;
    drawn.base.height += room - HEIGHT + 60.0;
    drawn.heatmap_series.min = 0.0;
    drawn.heatmap_series.max = 100.0;
    let (low, high) = if dark { ("#1d2733", "#56b4e9") } else { ("#eef4f9", "#0072b2") };
    drawn.heatmap_series.min_color = low.into();
    drawn.heatmap_series.max_color = high.into();
    let (on_low, on_high) = if dark { ("#e6e6e6", "#101418") } else { ("#222222", "#ffffff") };
    drawn.heatmap_series.min_font_color = on_low.into();
    drawn.heatmap_series.max_font_color = on_high.into();
    drawn
}
